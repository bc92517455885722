#include "kernels/cpu/random_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem {
namespace {

const RandomKey kKey{0xFEDCBA9876543210u, (uint64_t{3} << 32) + 5, 17, 300};

TEST(RandomFill, EqualsTheSingleNumbersOnEveryVariant) {
  for (CpuVariant variant : runnable_cpu_variants())
    for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{7}, (uint64_t{1} << 34) - 9})
      for (int64_t n : {0, 1, 3, 255, 256, 257, 3001}) {
        std::vector<uint32_t> words(n + 1, 42);
        std::vector<float> uniform(n + 1, 42), normal(n + 1, 42), mask(n + 1, 42), shaped(n + 1, 42);
        fill_u32(words.data(), n, kKey, first, variant);
        fill_uniform(uniform.data(), n, kKey, first, 0.0f, 1.0f, variant);
        fill_normal(normal.data(), n, kKey, first, 0.0f, 1.0f, variant);
        fill_normal(shaped.data(), n, kKey, first, 0.5f, 3.0f, variant);
        fill_bernoulli_mask(mask.data(), n, kKey, first, 0.25, 2.0f, variant);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(words[i], random_u32(kKey, first + i));
          ASSERT_EQ(uniform[i], random_uniform(kKey, first + i));
          ASSERT_EQ(normal[i], random_normal(kKey, first + i));
          ASSERT_EQ(shaped[i], 0.5f + 3.0f * normal[i]);
          ASSERT_EQ(mask[i], random_u32(kKey, first + i) < 0x40000000u ? 2.0f : 0.0f);
        }
        // Nothing is written past the end.
        EXPECT_EQ(words[n], 42u);
        for (float after : {uniform[n], normal[n], mask[n], shaped[n]}) EXPECT_EQ(after, 42.0f);
      }
}

TEST(RandomFill, CutsOfAnArrayGiveTheSameNumbers) {
  std::vector<float> whole(5000), cut(5000);
  fill_normal(whole.data(), 5000, kKey, 10);
  for (int64_t begin = 0, length = 1; begin < 5000; begin += length, length = length * 2 + 1)
    fill_normal(cut.data() + begin, std::min<int64_t>(length, 5000 - begin), kKey, 10 + begin);
  EXPECT_EQ(whole, cut);
}

TEST(RandomFill, MaskKeepsTheProbabilityAndItsEndsAreExact) {
  constexpr int kDraws = 1 << 20;
  std::vector<float> mask(kDraws);
  for (double keep : {0.1, 0.5, 0.9, 0.999}) {
    fill_bernoulli_mask(mask.data(), kDraws, kKey, 0, keep);
    double sum = 0;
    for (float m : mask) sum += m;
    EXPECT_NEAR(sum, kDraws * keep, 4 * std::sqrt(kDraws * keep * (1 - keep)));
  }
  fill_bernoulli_mask(mask.data(), kDraws, kKey, 0, 0.0);
  for (float m : mask) ASSERT_EQ(m, 0.0f);
  fill_bernoulli_mask(mask.data(), kDraws, kKey, 0, 1.0);
  for (float m : mask) ASSERT_EQ(m, 1.0f);
}

TEST(RandomFill, DropoutKeepsTheMeanAndDropsAllAtOne) {
  constexpr int kDraws = 1 << 20;
  std::vector<float> mask(kDraws);
  fill_dropout_mask(mask.data(), kDraws, kKey, 0, 0.2);
  double sum = 0;
  for (float m : mask) {
    ASSERT_TRUE(m == 0.0f || m == 1.25f);
    sum += m;
  }
  EXPECT_NEAR(sum / kDraws, 1.0, 4 * std::sqrt(0.25 / kDraws));
  fill_dropout_mask(mask.data(), kDraws, kKey, 0, 1.0);
  for (float m : mask) ASSERT_EQ(m, 0.0f);
  fill_dropout_mask(mask.data(), kDraws, kKey, 0, 0.0);
  for (float m : mask) ASSERT_EQ(m, 1.0f);
}

}  // namespace
}  // namespace tandem
