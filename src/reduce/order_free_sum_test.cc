#include "reduce/order_free_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/philox.h"

namespace tandem {
namespace {

using SumWords = std::array<int64_t, kSumWords>;

double summed(const std::vector<float>& values, size_t cut = SIZE_MAX) {
  SumWords words{}, rest{};
  cut = std::min(cut, values.size());
  add_to_words(words, std::span(values).first(cut));
  add_to_words(rest, std::span(values).subspan(cut));
  for (size_t i = 0; i < words.size(); ++i) words[i] += rest[i];
  return sum_of_words(words);
}

std::vector<float> values_of_all_sizes(uint64_t seed, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(random_below({.seed = seed}, 2 * i, 277)) - 149;
    const float fraction = static_cast<float>(random_below({.seed = seed}, 2 * i + 1, 1 << 24)) / (1 << 23) - 1;
    values.push_back(std::ldexp(fraction, static_cast<int>(exponent)));
  }
  return values;
}

TEST(OrderFreeSum, IsExactWhereFloatsCancel) {
  EXPECT_EQ(summed({1e30f, 1.0f, -1e30f}), 1.0);
  EXPECT_EQ(summed({3.4e38f, 3.4e38f, 1e-45f, -3.4e38f, -3.4e38f}), static_cast<double>(1e-45f));
  EXPECT_EQ(summed({-1e-45f}), static_cast<double>(-1e-45f));
  EXPECT_EQ(summed({}), 0.0);
  EXPECT_EQ(summed({2.5f, -2.5f}), 0.0);
}

// Whole numbers below 2^53 and their sums are exact in double: a plain loop is the reference.
TEST(OrderFreeSum, IsThatOfDoublesWhereTheseAreExact) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> values;
    double plain = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      values.push_back((static_cast<float>(random_below({.seed = seed}, i, 1 << 24)) - (1 << 23)) / 1024);
      plain += static_cast<double>(values.back());
    }
    EXPECT_EQ(summed(values), plain);
  }
}

TEST(OrderFreeSum, IsTheSameInAnyOrderAndGrouping) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> values = values_of_all_sizes(seed, 200);
    const double sum = summed(values);
    for (const size_t cut : {size_t{1}, size_t{77}, size_t{199}}) EXPECT_EQ(summed(values, cut), sum);
    std::ranges::reverse(values);
    EXPECT_EQ(summed(values), sum);
    std::ranges::sort(values);
    EXPECT_EQ(summed(values), sum);
  }
}

// 2^53 + 1 lies between two doubles: ties go to the even one, anything above goes up.
TEST(OrderFreeSum, IsRoundedOnceAndTiesGoToTheEven) {
  const float big = std::ldexp(1.0f, 53);
  EXPECT_EQ(summed({big, 1.0f}), std::ldexp(1.0, 53));
  EXPECT_EQ(summed({big, 1.0f, 1e-40f}), std::ldexp(1.0, 53) + 2);
  EXPECT_EQ(summed({big, 3.0f}), std::ldexp(1.0, 53) + 4);
  EXPECT_EQ(summed({-big, -1.0f, -1e-40f}), -std::ldexp(1.0, 53) - 2);
}

TEST(OrderFreeSum, CarriesKeepTheSumOfVeryManyValues) {
  SumWords words{};
  const std::vector<float> values(1 << 16, 3.4028235e38f);
  for (int i = 0; i < 64; ++i) {
    add_to_words(words, values);
    carry_words(words);
  }
  EXPECT_EQ(sum_of_words(words), std::ldexp(static_cast<double>(3.4028235e38f), 22));
}

TEST(OrderFreeSum, OfAValueThatIsNotFiniteIsNan) {
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(std::isnan(summed({1, odd, 2})));
}

}  // namespace
}  // namespace tandem
