#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace tandem {
namespace {

void expect_block(PhiloxBlock counter, uint32_t key0, uint32_t key1, PhiloxBlock expected) {
  const PhiloxBlock found = philox4x32(counter, key0, key1);
  for (int w = 0; w < 4; ++w) EXPECT_EQ(found.word[w], expected.word[w]) << "word " << w;
}

// Random123's kat_vectors, philox4x32 10.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  expect_block({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_block({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff,
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, CounterHasTheDocumentedLayout) {
  const RandomKey key{0x1122334455667788u, 0x0000ABCD01020304u, 0x0506u, 0x0708u};
  const PhiloxBlock counter = random_counter(key, 0x0000EF01A1A2A3A4u);
  EXPECT_EQ(counter.word[0], 0xA1A2A3A4u);
  EXPECT_EQ(counter.word[1], 0x01020304u);
  EXPECT_EQ(counter.word[2], 0x07080506u);
  EXPECT_EQ(counter.word[3], 0xABCDEF01u);
  const PhiloxBlock block = philox4x32(counter, 0x55667788u, 0x11223344u);
  for (uint64_t w = 0; w < 4; ++w) EXPECT_EQ(random_u32(key, 4 * 0x0000EF01A1A2A3A4u + w), block.word[w]);
}

TEST(Philox, EveryPartOfTheKeyMakesAnotherStream) {
  const RandomKey base{7, 100, 3, 9};
  std::vector<RandomKey> keys(9, base);
  keys[1].seed ^= 1;
  keys[2].seed ^= uint64_t{1} << 63;
  keys[3].step ^= 1;
  keys[4].step ^= uint64_t{1} << 47;
  keys[5].shard ^= 1;
  keys[6].shard ^= 1 << 15;
  keys[7].site ^= 1;
  keys[8].site ^= 1 << 15;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const RandomKey& key : keys) seen.insert({random_u32(key, 0), random_u32(key, 1)});
  EXPECT_EQ(seen.size(), keys.size());
}

TEST(Philox, UniformIsBelowOneAndFlat) {
  EXPECT_EQ(uniform_from_u32(0), 0.0f);
  EXPECT_EQ(uniform_from_u32(0xFFFFFFFFu), 1.0f - 0x1p-24f);
  constexpr int kBins = 256, kDraws = 1 << 20;
  std::vector<int> counts(kBins);
  const RandomKey key{11, 22, 1, 2};
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<int>(random_uniform(key, i) * kBins)];
  double chi2 = 0;
  for (int count : counts) chi2 += (count - kDraws / kBins) * double(count - kDraws / kBins) / (kDraws / kBins);
  // 255 degrees of freedom: mean 255, deviation 22.6; the bounds are at +-4 deviations.
  EXPECT_GT(chi2, 165);
  EXPECT_LT(chi2, 346);
}

TEST(Philox, NeighbouringIndicesAndShardsAreNotCorrelated) {
  constexpr int kDraws = 1 << 18;
  double by_index = 0, by_shard = 0, by_step = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double a = random_uniform({1, 5, 0, 0}, i) - 0.5;
    by_index += a * (random_uniform({1, 5, 0, 0}, i + 1) - 0.5);
    by_shard += a * (random_uniform({1, 5, 1, 0}, i) - 0.5);
    by_step += a * (random_uniform({1, 6, 0, 0}, i) - 0.5);
  }
  const double deviation = std::sqrt(double(kDraws)) / 12;
  EXPECT_LT(std::fabs(by_index), 4 * deviation);
  EXPECT_LT(std::fabs(by_shard), 4 * deviation);
  EXPECT_LT(std::fabs(by_step), 4 * deviation);
}

TEST(Philox, BelowStaysBelowAndIsFlat) {
  const RandomKey key{3, 4, 5, 6};
  EXPECT_EQ(random_below(key, 0, 1), 0u);
  constexpr int kDraws = 700000;
  std::vector<int> counts(7);
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t value = random_below(key, i, 7);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  for (int count : counts) EXPECT_NEAR(count, kDraws / 7, 4 * std::sqrt(kDraws * 6.0 / 49));
}

}  // namespace
}  // namespace tandem
