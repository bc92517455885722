#include "kernels/cpu/norms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

std::vector<float> normals(int64_t n) {
  std::vector<float> out(n);
  fill_normal(out.data(), n, {1, 2, 3, 4});
  return out;
}

// The order of norms.h, written as it is stated there.
double stated_order(const std::vector<float>& x) {
  const int64_t n = x.size();
  double total = 0, group = 0;
  for (int64_t block = 0; block * kNormBlock < n; ++block) {
    volatile double lanes[kNormLanes] = {};
    for (int64_t i = block * kNormBlock; i < std::min(n, (block + 1) * kNormBlock); ++i)
      lanes[i % kNormLanes] = lanes[i % kNormLanes] + double(x[i]) * double(x[i]);
    for (int width = 16; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] = lanes[l] + lanes[l + width];
    group += lanes[0];
    if ((block + 1) % kNormBlocksPerGroup == 0) total += group, group = 0;
  }
  return total + group;
}

TEST(SumOfSquares, HasTheStatedOrderOnEveryVariant) {
  for (int64_t n : {0, 1, 31, 33, 4095, 4096, 4097, 100001, 1048576, 2200003}) {
    const std::vector<float> x = normals(n);
    for (CpuVariant variant : runnable_cpu_variants())
      EXPECT_EQ(sum_of_squares(x.data(), n, variant), stated_order(x)) << n;
  }
}

TEST(SumOfSquares, NeitherOverflowsNorVanishes) {
  const std::vector<float> large(100, 1e38f), small(100, 1e-40f);
  EXPECT_NEAR(sum_of_squares(large.data(), 100) / (100 * double(1e38f) * double(1e38f)), 1, 1e-12);
  EXPECT_NEAR(sum_of_squares(small.data(), 100) / (100 * double(1e-40f) * double(1e-40f)), 1, 1e-12);
}

TEST(FirstNonfinite, FindsEachKindAtEachPlace) {
  const float bad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf(""),
                       -std::nanf("7"), std::numeric_limits<float>::signaling_NaN()};
  const std::vector<float> clean = normals(9001);
  for (CpuVariant variant : runnable_cpu_variants()) {
    EXPECT_TRUE(all_finite(clean.data(), 9001, variant));
    EXPECT_EQ(first_nonfinite(clean.data(), 9001, variant), -1);
    for (float value : bad)
      for (int64_t index : {0, 1, 15, 4095, 4096, 8999, 9000}) {
        std::vector<float> x = clean;
        x[index] = value;
        x[9000] = value;
        EXPECT_FALSE(all_finite(x.data(), 9001, variant));
        EXPECT_EQ(first_nonfinite(x.data(), 9001, variant), index);
        EXPECT_EQ(all_finite(x.data(), index, variant), true);
      }
  }
}

TEST(AllFinite, TakesTheLargestAndTheSmallestForFinite) {
  const float edge[] = {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                        std::numeric_limits<float>::denorm_min(), 0.0f, -0.0f};
  EXPECT_TRUE(all_finite(edge, 5));
  EXPECT_TRUE(all_finite(nullptr, 0));
}

}  // namespace
}  // namespace tandem
