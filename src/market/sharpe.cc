#include "market/sharpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/normal_quantile.h"
#include "kernels/philox.h"
#include "market/performance.h"

namespace tandem {
namespace {

constexpr uint32_t kBlockSite = 1, kPlaceSite = 2;  // of the bootstrap's two draws; the key belongs to it alone
constexpr size_t kFewestReturns = 20;

// P(|T| < t) for Student's t by its finite series (Abramowitz, Stegun 26.7.3 and 26.7.4).
double student_inside(double t, int64_t freedom) {
  const double nu = static_cast<double>(freedom), angle = std::atan(t / std::sqrt(nu));
  const double cosine = std::cos(angle), square = cosine * cosine;
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1, sum = freedom > 1 ? term : 0;
  for (int64_t k = odd ? 3 : 2; k < freedom; k += 2) {
    term *= square * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  if (!odd) return std::sin(angle) * sum;
  return 2 / std::numbers::pi * (angle + std::sin(angle) * sum);
}

// As numpy's: between the two nearest of the sorted values, in proportion.
double percentile(const std::vector<double>& sorted, double p) {
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double probability_below(double x) { return .5 * std::erfc(-x / std::numbers::sqrt2); }

double quantile_of_normal(double p) {
  const double q = p - .5;
  return in_quantile_centre(q) ? normal_quantile_centre(q) : normal_quantile_tail(q);
}

double quantile_of_student(double p, int64_t freedom) {
  if (p < .5) return -quantile_of_student(1 - p, freedom);
  const double inside = 2 * p - 1;
  double low = 0, high = 1;
  while (student_inside(high, freedom) < inside && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = .5 * (low + high);
    if (middle == low || middle == high) break;
    (student_inside(middle, freedom) < inside ? low : high) = middle;
  }
  return .5 * (low + high);
}

std::optional<DailySharpe> daily_sharpe(std::span<const double> returns, double rate) {
  const ReturnMoments m = return_moments(returns);
  if (!(m.deviation > 0)) return std::nullopt;
  return DailySharpe{.ratio = (m.mean - rate / kTradingDays) / m.deviation,
                     .skew = m.skew,
                     .kurtosis = m.kurtosis,
                     .days = static_cast<int64_t>(returns.size())};
}

std::optional<double> probabilistic_sharpe(const DailySharpe& measured, double benchmark) {
  const double ratio = measured.ratio;
  const double spread = 1 - measured.skew * ratio + (measured.kurtosis - 1) / 4 * ratio * ratio;
  if (measured.days < 2 || !(spread > 0)) return std::nullopt;
  return probability_below((ratio - benchmark) * std::sqrt(static_cast<double>(measured.days - 1) / spread));
}

double expected_best_sharpe(double variance, int64_t trials) {
  if (trials < 2) return 0;
  const double n = static_cast<double>(trials), gamma = std::numbers::egamma;
  return std::sqrt(variance) *
         ((1 - gamma) * quantile_of_normal(1 - 1 / n) + gamma * quantile_of_normal(1 - 1 / (n * std::numbers::e)));
}

std::optional<double> deflated_sharpe(const DailySharpe& measured, int64_t trials, std::optional<double> variance) {
  if (measured.days < 2) return std::nullopt;
  const double spread = variance.value_or(1 / static_cast<double>(measured.days - 1));
  return probabilistic_sharpe(measured, expected_best_sharpe(spread, trials));
}

std::optional<ValueInterval> sharpe_interval(std::span<const double> returns, double rate, const BootstrapPlan& plan) {
  const size_t n = returns.size();
  if (n < kFewestReturns || plan.resamples < 2) return std::nullopt;
  const double block = plan.block > 0 ? plan.block : std::max(5.0, std::round(std::cbrt(static_cast<double>(n))));
  std::vector<double> found, sample(n);
  for (int64_t b = 0; b < plan.resamples; ++b) {
    const auto step = static_cast<uint64_t>(b);
    const RandomKey begins{plan.seed, step, 0, kBlockSite}, places{plan.seed, step, 0, kPlaceSite};
    size_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      const bool begin = i == 0 || static_cast<double>(random_uniform(begins, i)) * block < 1;
      at = begin ? random_below(places, i, static_cast<uint32_t>(n)) : (at + 1) % n;
      sample[i] = returns[at];
    }
    if (const auto ratio = sharpe_ratio(sample, rate)) found.push_back(*ratio);
  }
  if (2 * found.size() < static_cast<size_t>(plan.resamples)) return std::nullopt;
  std::sort(found.begin(), found.end());
  return ValueInterval{percentile(found, .025), percentile(found, .975)};
}

std::optional<SeedInterval> over_seeds(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  SeedInterval out{.seeds = static_cast<int64_t>(values.size())};
  for (const double v : values) out.mean += v;
  out.mean /= n;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  out.deviation = std::sqrt(squares / (n - 1));
  const double half = quantile_of_student(.975, out.seeds - 1) * out.deviation / std::sqrt(n);
  out.interval = {out.mean - half, out.mean + half};
  return out;
}

std::string significance_in_words(std::optional<double> sharpe, const std::optional<ValueInterval>& interval) {
  if (!sharpe) return "no Sharpe ratio: the equity never moved";
  if (!interval) return fmt::format("Sharpe ratio {:.2f}, but too few days for an interval: nothing is shown", *sharpe);
  const std::string found =
      fmt::format("{:.2f}, its 95 % interval {:.2f} to {:.2f}", *sharpe, interval->low, interval->high);
  if (interval->holds(0)) return "no significant Sharpe ratio: " + found + " holds 0";
  if (interval->high < 0) return "significantly worse than cash at the rate: Sharpe ratio " + found + " is below 0";
  return "significant Sharpe ratio: " + found + " is above 0";
}

}  // namespace tandem
