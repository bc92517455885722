#include "kernels/cpu/sums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

std::vector<float> normal_terms(int64_t n, uint32_t site) {
  std::vector<float> out(n);
  fill_normal(out.data(), n, {1, 2, 3, site}, 0, 0.0f, 100.0f);
  return out;
}
bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(AddInOrder, AddsFromTheLeftForAnyCountSizeAndVariant) {
  for (CpuVariant variant : runnable_cpu_variants())
    for (int count : {1, 2, 3, 4, 5, 6, 7, 24})
      for (int64_t n : {0, 1, 17, 2048, 5001}) {
        std::vector<std::vector<float>> arrays;
        std::vector<const float*> inputs;
        for (int k = 0; k < count; ++k) arrays.push_back(normal_terms(n, k));
        for (auto& array : arrays) inputs.push_back(array.data());
        std::vector<float> expected = arrays[0], out(n, -1.0f);
        for (int k = 1; k < count; ++k)
          for (int64_t i = 0; i < n; ++i) {
            volatile float sum = expected[i] + arrays[k][i];
            expected[i] = sum;
          }
        add_in_order(out.data(), inputs.data(), count, n, variant);
        ASSERT_TRUE(equal_bits(out, expected)) << count << " arrays of " << n;
        add_in_order(arrays[0].data(), inputs.data(), count, n, variant);
        ASSERT_TRUE(equal_bits(arrays[0], expected)) << "in place, " << count << " arrays of " << n;
      }
}

TEST(AddInOrder, TheOrderShows) {
  const float big = 1e8f, minus = -1e8f, small = 1.0f;
  const float* left[] = {&big, &minus, &small};
  const float* right[] = {&big, &small, &minus};
  float a = 0, b = 0;
  add_in_order(&a, left, 3, 1);
  add_in_order(&b, right, 3, 1);
  EXPECT_EQ(a, 1.0f);
  EXPECT_EQ(b, 0.0f);
}

TEST(ScaleAdd, RoundsTwiceOnEveryVariant) {
  for (CpuVariant variant : runnable_cpu_variants()) {
    const std::vector<float> x = normal_terms(1003, 1), y = normal_terms(1003, 2);
    std::vector<float> expected(1003), soft(1003), scaled(1003), found = y;
    for (int i = 0; i < 1003; ++i) {
      volatile float product = 0.3f * x[i], gap = x[i] - y[i], part = 0.005f * gap;
      expected[i] = y[i] + product;
      soft[i] = y[i] + part;
      scaled[i] = product;
    }
    scale_add(found.data(), 0.3f, x.data(), 1003, variant);
    EXPECT_TRUE(equal_bits(found, expected));
    found = y;
    soft_update(found.data(), x.data(), 0.005f, 1003, variant);
    EXPECT_TRUE(equal_bits(found, soft));
    found = x;
    scale(found.data(), 0.3f, 1003, variant);
    EXPECT_TRUE(equal_bits(found, scaled));
  }
  // The product is 1 - 2^-24 + ..., which an FMA would not round away.
  float y = -1.0f, x = 1.0f + 0x1p-12f;
  scale_add(&y, 1.0f - 0x1p-12f, &x, 1);
  EXPECT_EQ(y, static_cast<float>((1.0f + 0x1p-12f) * (1.0f - 0x1p-12f)) - 1.0f);
}

TEST(SoftUpdate, RateOneCopiesAndRateZeroKeeps) {
  std::vector<float> target(10, 0.0f), p = normal_terms(10, 1);
  soft_update(target.data(), p.data(), 1.0f, 10);
  EXPECT_TRUE(equal_bits(target, p));
  soft_update(target.data(), normal_terms(10, 2).data(), 0.0f, 10);
  EXPECT_TRUE(equal_bits(target, p));
}

}  // namespace
}  // namespace tandem
