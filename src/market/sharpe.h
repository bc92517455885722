// market/sharpe.h -- how far a Sharpe ratio can be believed: its interval, and what is left of it when the number of
// tries, skewness and fat tails are taken into account.
//
// Bailey, Lopez de Prado: "The Sharpe ratio efficient frontier" (2012), "The deflated Sharpe ratio" (2014).
// Politis, Romano: "The stationary bootstrap" (1994).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tandem {

// Of the normal distribution and of Student's t; p from 1e-10 to 1 - 1e-10, freedom at least 1.
double probability_below(double x);
double quantile_of_normal(double p);
double quantile_of_student(double p, int64_t freedom);

// Of one day, not of a year, with the moments of the returns that it came from.
struct DailySharpe {
  double ratio = 0, skew = 0, kurtosis = 3;
  int64_t days = 0;
};
std::optional<DailySharpe> daily_sharpe(std::span<const double> returns, double rate);

// The probability that the true ratio is above `benchmark` (of one day), given what was measured. Absent where the
// moments leave no variance.
std::optional<double> probabilistic_sharpe(const DailySharpe& measured, double benchmark);

// The greatest ratio (of one day) to be expected among `trials` strategies without any skill whose measured ratios have
// this variance. 0 for one trial.
double expected_best_sharpe(double variance, int64_t trials);

// The probability of skill after `trials` tries. `variance`: of the daily ratios of the trials; absent: what chance
// alone would give, 1 / (days - 1).
std::optional<double> deflated_sharpe(const DailySharpe& measured, int64_t trials, std::optional<double> variance);

struct ValueInterval {
  double low = 0, high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
};

// 95 % of the year's Sharpe ratio, by a stationary block bootstrap: percentiles of `resamples` series, each of blocks
// of geometric length (mean `block` days; 0: the cube root of the number of days, at least 5) from random places,
// around the end to the beginning. The same seed gives the same interval. Absent under 20 days, and where more than
// half of the resamples do not vary.
struct BootstrapPlan {
  uint64_t seed = 1;
  int64_t resamples = 2000;
  double block = 0;
};
std::optional<ValueInterval> sharpe_interval(std::span<const double> returns, double rate,
                                             const BootstrapPlan& plan = {});

// Mean of a figure over several seeds with its 95 % interval by Student's t; absent under two values.
struct SeedInterval {
  double mean = 0, deviation = 0;
  int64_t seeds = 0;
  ValueInterval interval;
};
std::optional<SeedInterval> over_seeds(std::span<const double> values);

// In words: "no significant Sharpe ratio: 0.31, its 95 % interval -0.30 to 0.90 holds 0".
std::string significance_in_words(std::optional<double> sharpe, const std::optional<ValueInterval>& interval);

}  // namespace tandem
