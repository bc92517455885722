#include "market/sharpe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/philox.h"
#include "market/performance.h"

namespace tandem {
namespace {

std::vector<double> normal_returns(size_t n, double mean, double deviation, uint64_t seed) {
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = mean + deviation * static_cast<double>(random_normal(RandomKey{seed, 0, 0, 9}, i));
  return out;
}

TEST(Quantiles, OfNormalAndStudentAreThoseOfTheTables) {
  EXPECT_NEAR(quantile_of_normal(.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(quantile_of_normal(.25), -.6744897501960817, 1e-14);
  EXPECT_NEAR(probability_below(1.959963984540054), .975, 1e-14);
  EXPECT_NEAR(quantile_of_student(.975, 1), std::tan(.475 * std::numbers::pi), 1e-12);
  EXPECT_NEAR(quantile_of_student(.975, 2), .95 * std::sqrt(2 / .0975), 1e-12);
  EXPECT_NEAR(quantile_of_student(.975, 3), 3.182446305, 1e-9);
  EXPECT_NEAR(quantile_of_student(.975, 10), 2.228138852, 1e-9);
  EXPECT_NEAR(quantile_of_student(.025, 29), -2.045229642, 1e-9);
  EXPECT_NEAR(quantile_of_student(.975, 1'000'000), 1.959966, 1e-5);
}

// Bailey, Lopez de Prado (2014), the numerical example: five years of daily returns, a year's ratio of 2.5.
TEST(DeflatedSharpe, IsThatOfThePaper) {
  const double variance = .5 / 250;
  EXPECT_NEAR(expected_best_sharpe(variance, 100), .1132, 5e-5);
  const DailySharpe fat{.ratio = 2.5 / std::sqrt(250.0), .skew = -3, .kurtosis = 10, .days = 1250};
  const DailySharpe normal{.ratio = 2.5 / std::sqrt(250.0), .skew = 0, .kurtosis = 3, .days = 1250};
  EXPECT_NEAR(*deflated_sharpe(fat, 100, variance), .9004, 5e-5);
  EXPECT_NEAR(*deflated_sharpe(fat, 46, variance), .9505, 5e-5);
  EXPECT_NEAR(*deflated_sharpe(normal, 88, variance), .9505, 5e-5);
}

TEST(DeflatedSharpe, OfOneTrialIsTheProbabilisticOneAndFallsWithTheirNumber) {
  const DailySharpe measured{.ratio = .08, .skew = -.5, .kurtosis = 5, .days = 500};
  EXPECT_DOUBLE_EQ(*deflated_sharpe(measured, 1, std::nullopt), *probabilistic_sharpe(measured, 0));
  double before = 1;
  for (const int64_t trials : {1, 2, 5, 20, 100, 10'000}) {
    const double now = *deflated_sharpe(measured, trials, std::nullopt);
    EXPECT_LT(now, before) << trials;
    before = now;
  }
  EXPECT_LT(before, .05);
}

TEST(DeflatedSharpe, IsAbsentWhereNothingVaries) {
  EXPECT_FALSE(daily_sharpe(std::vector<double>(50, .001), 0));
  EXPECT_FALSE(daily_sharpe(std::vector<double>{.01}, 0));
}

// Where days are independent the ratio's standard error is known: sqrt((1 + ratio^2 / 2) / days), of one day.
TEST(SharpeInterval, HasTheWidthThatTheoryGivesForIndependentDays) {
  const auto returns = normal_returns(2000, .0005, .01, 3);
  const auto interval = sharpe_interval(returns, 0);
  ASSERT_TRUE(interval);
  const double ratio = *sharpe_ratio(returns, 0);
  EXPECT_TRUE(interval->holds(ratio));
  const double width = 2 * 1.96 * std::sqrt(252.0 / 2000);
  EXPECT_NEAR(interval->high - interval->low, width, .1 * width);
}

// Of 100 series without any edge, about 95 intervals hold 0.
TEST(SharpeInterval, HoldsZeroAsOftenAsItClaims) {
  int held = 0;
  for (uint64_t seed = 0; seed < 100; ++seed)
    held += sharpe_interval(normal_returns(250, 0, .01, 100 + seed), 0, {.seed = 1, .resamples = 400})->holds(0);
  EXPECT_GE(held, 88);
  EXPECT_LE(held, 99);
}

// Days that come in runs carry less information than as many independent ones; single days would not see that.
TEST(SharpeInterval, WidensWhereDaysHangTogether) {
  std::vector<double> runs;
  for (const double r : normal_returns(200, 0, .01, 5)) runs.insert(runs.end(), 10, r);
  const auto by_blocks = sharpe_interval(runs, 0, {.block = 20}), by_days = sharpe_interval(runs, 0, {.block = 1});
  EXPECT_GT(by_blocks->high - by_blocks->low, 2 * (by_days->high - by_days->low));
}

TEST(SharpeInterval, IsTheSameForTheSameSeedAndAbsentForTooFewDays) {
  const auto returns = normal_returns(120, .001, .01, 7);
  const auto a = sharpe_interval(returns, .02, {.seed = 4}), b = sharpe_interval(returns, .02, {.seed = 4}),
             c = sharpe_interval(returns, .02, {.seed = 5});
  EXPECT_EQ(a->low, b->low);
  EXPECT_EQ(a->high, b->high);
  EXPECT_NE(a->low, c->low);
  EXPECT_FALSE(sharpe_interval(std::span(returns).first(19), 0));
  EXPECT_FALSE(sharpe_interval(std::vector<double>(100, 0.0), 0));
}

TEST(SeedIntervals, AreThoseOfStudentsT) {
  const auto found = over_seeds(std::vector<double>{1, 2, 3});
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->mean, 2);
  EXPECT_DOUBLE_EQ(found->deviation, 1);
  EXPECT_NEAR(found->interval.low, 2 - 4.302652729749 / std::sqrt(3.0), 1e-11);
  EXPECT_NEAR(found->interval.high, 2 + 4.302652729749 / std::sqrt(3.0), 1e-11);
  EXPECT_FALSE(over_seeds(std::vector<double>{1}));
}

TEST(Significance, IsSaidInWords) {
  EXPECT_EQ(significance_in_words(.31, ValueInterval{-.3, .9}),
            "no significant Sharpe ratio: 0.31, its 95 % interval -0.30 to 0.90 holds 0");
  EXPECT_EQ(significance_in_words(1.31, ValueInterval{.3, 1.9}),
            "significant Sharpe ratio: 1.31, its 95 % interval 0.30 to 1.90 is above 0");
  EXPECT_EQ(
      significance_in_words(-1.31, ValueInterval{-2.3, -.9}),
      "significantly worse than cash at the rate: Sharpe ratio -1.31, its 95 % interval -2.30 to -0.90 is below 0");
  EXPECT_EQ(significance_in_words(std::nullopt, std::nullopt), "no Sharpe ratio: the equity never moved");
}

}  // namespace
}  // namespace tandem
