// market/performance.h -- figures of a series of daily equity, as practitioners report them.
//
// A year has 252 trading days. Returns are simple ones of each day, equity[i] / equity[i - 1] - 1. A figure that does
// not exist (a Sharpe ratio of a curve that never moved) is absent, never 0. Variances divide by n - 1, except those
// inside skewness and kurtosis, which divide by n. Costs are in the equity already: nothing here adds one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

inline constexpr double kTradingDays = 252;

// The first point is the capital at the close of the day of the first decision; the others are values at closes.
struct EquityCurve {
  std::string name;
  std::vector<int32_t> dates;  // 20241231, strictly increasing
  std::vector<int64_t> cents;  // as many, above 0
  std::vector<uint8_t> held;   // as many: 1 where a position was open at the close; empty: not known
};

// A position from its first order to its end; both fills with their costs.
struct ClosedTrade {
  std::string symbol;
  int32_t opened = 0, closed = 0;  // dates; closed 0: still open on the last day
  int64_t bought_cents = 0;        // paid for what was bought, costs in
  int64_t sold_cents = 0;          // received for what was sold, by exercise or at expiry too, costs out
  int64_t profit_cents() const { return sold_cents - bought_cents; }
};

struct Drawdown {
  double depth = 0;                             // share of the peak that was lost, 0 to 1
  int32_t peak = 0, trough = 0, recovered = 0;  // dates; recovered 0: not until the end
};

struct Performance {
  int64_t days = 0;  // returns, one less than points
  int32_t first = 0, last = 0;
  double total_return = 0;              // .05: 5 %
  std::optional<double> annual_return;  // compounded; absent under 20 days, where it means nothing
  double volatility = 0;                // a year's
  std::optional<double> sharpe, sortino, calmar;
  Drawdown drawdown;
  std::optional<double> cvar95;      // mean of the worst 5 % of days, as a return: -.02 is a loss of 2 %
  std::optional<double> hit_days;    // of days on which the value changed, the share that gained
  std::optional<double> hit_trades;  // of closed trades, the share with a profit
  int64_t closed_trades = 0, open_trades = 0;
  std::optional<double> exposure;  // share of days with an open position at the close
  std::optional<double> turnover;  // value bought and sold in a year / mean equity
  double skew = 0, kurtosis = 3;   // of daily returns; a normal distribution has 0 and 3
};

// Throws ConfigError where there are fewer than 3 points, lengths differ, dates do not increase or a value is not
// above 0: it names the curve and the date.
void check_curve(const EquityCurve& curve);
std::vector<double> daily_returns(const EquityCurve& curve);

// `rate`: of a year without risk, what Sharpe and Sortino ratios are in excess of. `trades` null: none are known.
Performance performance_of(const EquityCurve& curve, double rate, const std::vector<ClosedTrade>* trades = nullptr);

struct ReturnMoments {
  double mean = 0, deviation = 0, skew = 0, kurtosis = 3;  // of one day; deviation 0: the returns do not vary
};
ReturnMoments return_moments(std::span<const double> returns);

// Of daily returns, a year's; absent where they do not vary.
std::optional<double> sharpe_ratio(std::span<const double> returns, double rate);
std::optional<double> sortino_ratio(std::span<const double> returns, double rate);
Drawdown worst_drawdown(const EquityCurve& curve);
// Mean of the worst `share` of values; where that is no whole number, the last one counts with what is left.
std::optional<double> mean_of_worst(std::span<const double> returns, double share);

// One portfolio out of several, each with its own capital: on each date of any of them the sum of all. Before its first
// date a curve counts with its first value (cash that waits), after its last with its last.
EquityCurve sum_of_curves(std::span<const EquityCurve> curves, std::string name);
// Periods one after the other as one curve: each later one is scaled to begin where the one before ended. Throws
// ConfigError where a period begins before the end of the one before.
EquityCurve chained_curves(std::span<const EquityCurve> curves, std::string name);

}  // namespace tandem
