#include "kernels/normal_quantile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem {
namespace {

// Newton's method on std::erfc, in long double: good far beyond what is tested.
long double reference_quantile(uint32_t bits) {
  const long double p = (static_cast<long double>(bits) + 0.5L) * 0x1p-32L;
  const bool upper = p > 0.5L;
  const long double nearer = upper ? 1.0L - p : p;
  long double x = 0.0L;  // the lower quantile, x <= 0: from 0 Newton falls monotonically on a convex function
  for (int i = 0; i < 200; ++i) {
    const long double cdf = 0.5L * std::erfc(-x / std::sqrt(2.0L));
    const long double density = std::exp(-0.5L * x * x) / std::sqrt(2.0L * std::acos(-1.0L));
    const long double next = x - std::max(-0.5L, std::min(0.5L, (cdf - nearer) / density));
    if (std::fabs(next - x) < 1e-18L) break;
    x = next;
  }
  return upper ? -x : x;
}

TEST(NormalQuantile, AgreesWithErfcToSevenDigits) {
  std::vector<uint32_t> words = {0, 1, 2, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFEu, 0xFFFFFFFFu, 322122547u, 322122548u};
  for (uint32_t i = 0; i < 4000; ++i) words.push_back(random_u32({1, 2, 3, 4}, i));
  for (int shift = 0; shift < 32; ++shift) words.push_back(1u << shift);
  for (uint32_t bits : words) {
    const double q = centred_from_u32(bits);
    const double exact = static_cast<double>(reference_quantile(bits));
    const double ours = in_quantile_centre(q) ? normal_quantile_centre(q) : normal_quantile_tail(q);
    EXPECT_NEAR(ours / exact, 1.0, 1e-14) << bits;
    EXPECT_NEAR(normal_from_u32(bits) / exact, 1.0, 1e-7) << bits;
  }
}

TEST(NormalQuantile, IsAntisymmetricAndGrowing) {
  for (uint32_t i = 0; i < 10000; ++i) {
    const uint32_t bits = random_u32({5, 0, 0, 0}, i);
    EXPECT_EQ(normal_from_u32(bits), -normal_from_u32(~bits));
  }
  float last = normal_from_u32(0);
  for (uint64_t bits = 1; bits < (uint64_t{1} << 32); bits += 65537) {
    const float next = normal_from_u32(static_cast<uint32_t>(bits));
    ASSERT_LT(last, next) << bits;
    last = next;
  }
  // Across the seam of the two ratios, word by word.
  for (uint32_t bits = 322122547u - 500; bits < 322122547u + 500; ++bits)
    ASSERT_LE(normal_from_u32(bits), normal_from_u32(bits + 1));
}

TEST(NormalQuantile, LogIsWithinAnUlp) {
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(0.5 + 0.5 * random_uniform({9, 0, 0, 0}, i), static_cast<int>(i % 80) - 60);
    const long double exact = std::log(static_cast<long double>(x));
    EXPECT_NEAR(exact_log(x), static_cast<double>(exact), std::fabs(static_cast<double>(exact)) * 0x1p-52 + 1e-300)
        << x;
  }
  EXPECT_EQ(exact_log(1.0), 0.0);
}

TEST(NormalQuantile, DrawsHaveNormalMomentsAndTails) {
  constexpr int64_t kDraws = 1 << 21;
  std::vector<float> x(kDraws);
  fill_normal(x.data(), kDraws, {2024, 1, 2, 3});
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int64_t beyond2 = 0, beyond4 = 0;
  for (double v : x) {
    m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
    beyond2 += std::fabs(v) > 2, beyond4 += std::fabs(v) > 4;
  }
  const double n = kDraws;
  // Each bound is 4 deviations of that statistic.
  EXPECT_NEAR(m1 / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(m2 / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(m3 / n, 0, 4 * std::sqrt(15 / n));
  EXPECT_NEAR(m4 / n, 3, 4 * std::sqrt(96 / n));
  const double p2 = std::erfc(std::sqrt(2.0)), p4 = std::erfc(4 / std::sqrt(2.0));
  EXPECT_NEAR(beyond2, n * p2, 4 * std::sqrt(n * p2));
  EXPECT_NEAR(beyond4, n * p4, 4 * std::sqrt(n * p4));
}

}  // namespace
}  // namespace tandem
