#include "kernels/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem {
namespace {

// Every 997th float, of both signs: normal, subnormal, huge.
template <class Check>
void every_so_often(Check check) {
  for (uint64_t bits = 0; bits < 0x7F800000u; bits += 997)
    for (const uint32_t sign : {0u, 0x80000000u}) check(std::bit_cast<float>(static_cast<uint32_t>(bits) | sign));
}

// All its numbers from 0 on, as the format defines them; 65,536, which it has not, stands for infinity.
std::vector<double> numbers_of_fp16() {
  std::vector<double> all;
  for (int exponent = 0; exponent < 31; ++exponent)
    for (int part = 0; part < 1024; ++part)
      all.push_back(exponent == 0 ? std::ldexp(part, -24) : std::ldexp(1024 + part, exponent - 25));
  all.push_back(65536);
  return all;
}

TEST(Rounding, ToFp16IsToNearestTiesToEven) {
  const std::vector<double> numbers = numbers_of_fp16();
  const auto check = [&](float x) {
    const double magnitude = std::min(std::abs(static_cast<double>(x)), 65536.0);
    const auto upper = static_cast<size_t>(std::ranges::lower_bound(numbers, magnitude) - numbers.begin());
    size_t nearest = upper;
    if (upper > 0) {
      const double up = numbers[upper] - magnitude, down = magnitude - numbers[upper - 1];
      if (down < up || (down == up && upper % 2 == 1)) nearest = upper - 1;
    }
    const double expected = nearest + 1 == numbers.size() ? INFINITY : numbers[nearest];
    const float is = rounded(Precision::kFp16, x);
    ASSERT_EQ(std::abs(is), expected) << x;
    ASSERT_EQ(std::signbit(is), std::signbit(x)) << x;
  };
  every_so_often(check);
  for (size_t i = 0; i + 1 < numbers.size(); ++i) check(static_cast<float>((numbers[i] + numbers[i + 1]) / 2));  // ties
}

// The nearer neighbour in steps of 2^-7 (bf16) or 2^-10 (tf32) of a power of two; ties to even, or away from zero.
TEST(Rounding, ToBf16AndTf32IsToNearest) {
  for (const auto& [precision, dropped] : {std::pair{Precision::kBf16, 16}, {Precision::kTf32, 13}})
    every_so_often([precision = precision, dropped = dropped](float x) {
      const uint32_t bits = std::bit_cast<uint32_t>(x), below = bits >> dropped << dropped, step = 1u << dropped;
      const uint32_t rest = bits - below;
      const bool up = 2 * rest > step || (2 * rest == step && (precision == Precision::kTf32 || (below & step) != 0));
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded(precision, x)), below + (up ? step : 0)) << x;
    });
}

TEST(Rounding, KeepsNanInfinityAndEveryBitOfFp32) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    EXPECT_TRUE(std::isnan(rounded(precision, std::bit_cast<float>(0x7FFFFFFFu))));
    EXPECT_TRUE(std::isnan(rounded(precision, std::bit_cast<float>(0xFF800001u))));
    EXPECT_EQ(rounded(precision, -std::numeric_limits<float>::infinity()), -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::signbit(rounded(precision, -0.0f)));
  }
  EXPECT_EQ(rounded(Precision::kFp32, 1.0000001f), 1.0000001f);
  EXPECT_EQ(rounded(Precision::kFp16, 65519.9f), 65504.0f);
  EXPECT_TRUE(std::isinf(rounded(Precision::kFp16, 65520.0f)));
}

}  // namespace
}  // namespace tandem
