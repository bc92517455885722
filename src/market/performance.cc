#include "market/performance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/errors.h"

namespace tandem {
namespace {

constexpr int64_t kFewestDays = 20;  // a figure of a year is not made from less

void add_trades(const EquityCurve& curve, const std::vector<ClosedTrade>& trades, Performance& out) {
  int64_t won = 0;
  double value = 0, mean_equity = 0;
  for (const ClosedTrade& trade : trades) {
    value += static_cast<double>(trade.bought_cents) + static_cast<double>(trade.sold_cents);
    ++(trade.closed == 0 ? out.open_trades : out.closed_trades);
    won += trade.closed != 0 && trade.profit_cents() > 0;
  }
  if (out.closed_trades > 0) out.hit_trades = static_cast<double>(won) / static_cast<double>(out.closed_trades);
  for (const int64_t cents : curve.cents) mean_equity += static_cast<double>(cents);
  mean_equity /= static_cast<double>(curve.cents.size());
  out.turnover = value / mean_equity * kTradingDays / static_cast<double>(out.days);
}

}  // namespace

void check_curve(const EquityCurve& curve) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("the equity of {} cannot be judged", curve.name), why,
                      "give one value above 0 for each trading day, oldest first");
  };
  if (curve.dates.size() != curve.cents.size() || (!curve.held.empty() && curve.held.size() != curve.cents.size()))
    refuse(fmt::format("it has {} dates and {} values", curve.dates.size(), curve.cents.size()));
  if (curve.dates.size() < 3) refuse(fmt::format("it has {} days; figures need 3", curve.dates.size()));
  for (size_t i = 0; i < curve.dates.size(); ++i) {
    if (i > 0 && curve.dates[i] <= curve.dates[i - 1])
      refuse(fmt::format("{} stands after {}", curve.dates[i], curve.dates[i - 1]));
    if (curve.cents[i] <= 0) refuse(fmt::format("its value on {} is {} cents", curve.dates[i], curve.cents[i]));
  }
}

std::vector<double> daily_returns(const EquityCurve& curve) {
  std::vector<double> out;
  out.reserve(curve.cents.size());
  for (size_t i = 1; i < curve.cents.size(); ++i)
    out.push_back(static_cast<double>(curve.cents[i]) / static_cast<double>(curve.cents[i - 1]) - 1);
  return out;
}

// Two passes: a mean of 1e-4 beside deviations of 1e-2 would lose digits in one.
ReturnMoments return_moments(std::span<const double> returns) {
  const auto n = static_cast<double>(returns.size());
  ReturnMoments m;
  if (returns.empty()) return m;
  for (const double r : returns) m.mean += r;
  m.mean /= n;
  // Equal returns have no deviation, whatever the rounding of their mean.
  if (std::all_of(returns.begin(), returns.end(), [&](double r) { return r == returns.front(); })) return m;
  double second = 0, third = 0, fourth = 0;
  for (const double r : returns) {
    const double d = r - m.mean, square = d * d;
    second += square;
    third += square * d;
    fourth += square * square;
  }
  m.deviation = std::sqrt(second / (n - 1));
  const double variance = second / n;
  m.skew = third / n / std::pow(variance, 1.5);
  m.kurtosis = fourth / n / (variance * variance);
  return m;
}

std::optional<double> sharpe_ratio(std::span<const double> returns, double rate) {
  const ReturnMoments m = return_moments(returns);
  if (!(m.deviation > 0)) return std::nullopt;
  return (m.mean - rate / kTradingDays) / m.deviation * std::sqrt(kTradingDays);
}

std::optional<double> sortino_ratio(std::span<const double> returns, double rate) {
  double excess = 0, squares = 0;
  for (const double r : returns) {
    const double over = r - rate / kTradingDays;
    excess += over;
    if (over < 0) squares += over * over;
  }
  const auto n = static_cast<double>(returns.size());
  if (!(squares > 0) || !(return_moments(returns).deviation > 0)) return std::nullopt;
  return excess / n / std::sqrt(squares / n) * std::sqrt(kTradingDays);
}

Drawdown worst_drawdown(const EquityCurve& curve) {
  Drawdown worst;
  size_t peak = 0, worst_peak = 0, worst_trough = 0;
  for (size_t i = 1; i < curve.cents.size(); ++i) {
    if (curve.cents[i] > curve.cents[peak]) peak = i;
    const double depth = 1 - static_cast<double>(curve.cents[i]) / static_cast<double>(curve.cents[peak]);
    if (depth > worst.depth) worst.depth = depth, worst_peak = peak, worst_trough = i;
  }
  if (worst.depth == 0) return worst;
  worst.peak = curve.dates[worst_peak], worst.trough = curve.dates[worst_trough];
  for (size_t i = worst_trough; i < curve.cents.size() && worst.recovered == 0; ++i)
    if (curve.cents[i] >= curve.cents[worst_peak]) worst.recovered = curve.dates[i];
  return worst;
}

std::optional<double> mean_of_worst(std::span<const double> returns, double share) {
  if (returns.empty() || !(share > 0)) return std::nullopt;
  std::vector<double> sorted(returns.begin(), returns.end());
  std::sort(sorted.begin(), sorted.end());
  const double wanted = share * static_cast<double>(sorted.size());
  double sum = 0, left = wanted;
  for (size_t i = 0; i < sorted.size() && left > 0; ++i, left -= 1) sum += std::min(left, 1.0) * sorted[i];
  return sum / wanted;
}

Performance performance_of(const EquityCurve& curve, double rate, const std::vector<ClosedTrade>* trades) {
  check_curve(curve);
  const std::vector<double> returns = daily_returns(curve);
  const ReturnMoments m = return_moments(returns);
  Performance out{
      .days = static_cast<int64_t>(returns.size()), .first = curve.dates.front(), .last = curve.dates.back()};
  const double growth = static_cast<double>(curve.cents.back()) / static_cast<double>(curve.cents.front());
  out.total_return = growth - 1;
  if (out.days >= kFewestDays) out.annual_return = std::pow(growth, kTradingDays / static_cast<double>(out.days)) - 1;
  out.volatility = m.deviation * std::sqrt(kTradingDays);
  out.sharpe = sharpe_ratio(returns, rate);
  out.sortino = sortino_ratio(returns, rate);
  out.drawdown = worst_drawdown(curve);
  if (out.annual_return && out.drawdown.depth > 0) out.calmar = *out.annual_return / out.drawdown.depth;
  if (out.days >= kFewestDays) out.cvar95 = mean_of_worst(returns, .05);
  out.skew = m.skew, out.kurtosis = m.kurtosis;
  const auto moved = std::count_if(returns.begin(), returns.end(), [](double r) { return r != 0; });
  const auto gained = std::count_if(returns.begin(), returns.end(), [](double r) { return r > 0; });
  if (moved > 0) out.hit_days = static_cast<double>(gained) / static_cast<double>(moved);
  if (!curve.held.empty())  // the first point is before any order
    out.exposure =
        static_cast<double>(std::count(curve.held.begin() + 1, curve.held.end(), 1)) / static_cast<double>(out.days);
  if (trades) add_trades(curve, *trades, out);
  return out;
}

EquityCurve sum_of_curves(std::span<const EquityCurve> curves, std::string name) {
  EquityCurve sum{.name = std::move(name)};
  bool held_known = !curves.empty();
  for (const EquityCurve& curve : curves) {
    check_curve(curve);
    sum.dates.insert(sum.dates.end(), curve.dates.begin(), curve.dates.end());
    held_known = held_known && !curve.held.empty();
  }
  std::sort(sum.dates.begin(), sum.dates.end());
  sum.dates.erase(std::unique(sum.dates.begin(), sum.dates.end()), sum.dates.end());
  sum.cents.assign(sum.dates.size(), 0);
  if (held_known) sum.held.assign(sum.dates.size(), 0);
  for (const EquityCurve& curve : curves) {
    size_t at = 0;  // the curve's newest point that is known on the date
    for (size_t i = 0; i < sum.dates.size(); ++i) {
      while (at + 1 < curve.dates.size() && curve.dates[at + 1] <= sum.dates[i]) ++at;
      sum.cents[i] += curve.cents[at];
      const bool inside = sum.dates[i] >= curve.dates.front() && sum.dates[i] <= curve.dates.back();
      if (held_known && inside && curve.held[at]) sum.held[i] = 1;
    }
  }
  return sum;
}

EquityCurve chained_curves(std::span<const EquityCurve> curves, std::string name) {
  EquityCurve out{.name = std::move(name)};
  bool held_known = !curves.empty();
  for (const EquityCurve& curve : curves) check_curve(curve), held_known = held_known && !curve.held.empty();
  for (const EquityCurve& curve : curves) {
    const bool first = out.dates.empty();
    if (!first && curve.dates.front() < out.dates.back())
      throw ConfigError(fmt::format("the periods of {} cannot be put one after the other", out.name),
                        fmt::format("one ends on {}, the next begins on {}", out.dates.back(), curve.dates.front()),
                        "give periods that do not overlap, oldest first");
    const double scale = first ? 1 : static_cast<double>(out.cents.back()) / static_cast<double>(curve.cents.front());
    // A period's first point is its capital: it is there already, as the end of the one before.
    for (size_t i = first ? 0 : 1; i < curve.cents.size(); ++i) {
      out.dates.push_back(curve.dates[i]);
      out.cents.push_back(static_cast<int64_t>(std::llround(static_cast<double>(curve.cents[i]) * scale)));
      if (held_known) out.held.push_back(curve.held[i]);
    }
  }
  return out;
}

}  // namespace tandem
