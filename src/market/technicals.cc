#include "market/technicals.h"

#include <algorithm>
#include <cmath>

#include "kernels/normal_quantile.h"

namespace tandem {

namespace {

constexpr double kTradingDaysAYear = 252;

// The last n values up to and including i, or those that are there.
std::span<const double> last_values(std::span<const double> x, size_t i, size_t n) {
  const size_t first = i + 1 > n ? i + 1 - n : 0;
  return x.subspan(first, i + 1 - first);
}

template <class F>
Series over_windows(std::span<const double> x, size_t n, F f) {
  Series out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = f(last_values(x, i, n));
  return out;
}

double mean_of(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

double deviation_of(std::span<const double> x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

template <class F>
Series of_bars(std::span<const Bar> bars, F f) {
  Series out;
  out.reserve(bars.size());
  for (const Bar& bar : bars) out.push_back(f(bar));
  return out;
}

Series true_ranges(std::span<const Bar> bars) {
  Series out(bars.size());
  for (size_t i = 0; i < bars.size(); ++i) {
    out[i] = bars[i].high - bars[i].low;
    if (i == 0) continue;
    const double before = bars[i - 1].close;
    out[i] = std::max({out[i], std::fabs(bars[i].high - before), std::fabs(bars[i].low - before)});
  }
  return out;
}

}  // namespace

Series moving_mean(std::span<const double> x, size_t n) { return over_windows(x, n, mean_of); }
Series moving_deviation(std::span<const double> x, size_t n) { return over_windows(x, n, deviation_of); }
Series moving_max(std::span<const double> x, size_t n) {
  return over_windows(x, n, [](std::span<const double> w) { return *std::max_element(w.begin(), w.end()); });
}
Series moving_min(std::span<const double> x, size_t n) {
  return over_windows(x, n, [](std::span<const double> w) { return *std::min_element(w.begin(), w.end()); });
}

Series exponential_mean(std::span<const double> x, size_t n) {
  const double weight = 2.0 / (static_cast<double>(n) + 1);
  Series out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = i == 0 ? x[0] : out[i - 1] + weight * (x[i] - out[i - 1]);
  return out;
}

Series wilder_mean(std::span<const double> x, size_t n) {
  Series out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = i < n ? mean_of(x.first(i + 1)) : out[i - 1] + (x[i] - out[i - 1]) / static_cast<double>(n);
  return out;
}

Series closes_of(std::span<const Bar> bars) {
  return of_bars(bars, [](const Bar& bar) { return bar.close; });
}

Series log_returns(std::span<const Bar> bars, size_t lag) {
  Series out(bars.size());
  for (size_t i = lag; i < bars.size(); ++i) out[i] = exact_log(bars[i].close / bars[i - lag].close);
  return out;
}

Series relative_strength(std::span<const Bar> bars, size_t n) {
  Series out(bars.size(), 50);
  if (bars.size() < 2) return out;
  Series gains, losses;  // of bars 1, 2, ...
  for (size_t i = 1; i < bars.size(); ++i) {
    const double change = bars[i].close - bars[i - 1].close;
    gains.push_back(std::max(change, 0.0));
    losses.push_back(std::max(-change, 0.0));
  }
  const Series gain = wilder_mean(gains, n), loss = wilder_mean(losses, n);
  for (size_t i = 1; i < bars.size(); ++i) {
    const double both = gain[i - 1] + loss[i - 1];
    if (both > 0) out[i] = 100 * gain[i - 1] / both;
  }
  return out;
}

Macd macd(std::span<const Bar> bars, size_t fast, size_t slow, size_t signal) {
  const Series closes = closes_of(bars), quick = exponential_mean(closes, fast), late = exponential_mean(closes, slow);
  Macd out;
  for (size_t i = 0; i < closes.size(); ++i) out.line.push_back(quick[i] - late[i]);
  out.signal = exponential_mean(out.line, signal);
  return out;
}

Bollinger bollinger(std::span<const Bar> bars, size_t n) {
  const Series closes = closes_of(bars), mean = moving_mean(closes, n), deviation = moving_deviation(closes, n);
  Bollinger out;
  for (size_t i = 0; i < closes.size(); ++i) {
    // A window without movement has a deviation of rounding errors.
    const bool moved = deviation[i] > 1e-9 * mean[i];
    out.position.push_back(moved ? (closes[i] - mean[i]) / (2 * deviation[i]) : 0);
    out.width.push_back(4 * deviation[i] / mean[i]);
  }
  return out;
}

Series average_true_range(std::span<const Bar> bars, size_t n) { return wilder_mean(true_ranges(bars), n); }

Stochastic stochastic(std::span<const Bar> bars, size_t n) {
  const Series top = moving_max(of_bars(bars, [](const Bar& b) { return b.high; }), n);
  const Series bottom = moving_min(of_bars(bars, [](const Bar& b) { return b.low; }), n);
  Stochastic out;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double width = top[i] - bottom[i];
    out.k.push_back(width > 0 ? 100 * (bars[i].close - bottom[i]) / width : 50);
  }
  out.d = moving_mean(out.k, 3);
  return out;
}

DirectionalMovement directional_movement(std::span<const Bar> bars, size_t n) {
  Series up(bars.size()), down(bars.size()), ratio(bars.size());
  for (size_t i = 1; i < bars.size(); ++i) {
    const double rise = bars[i].high - bars[i - 1].high, fall = bars[i - 1].low - bars[i].low;
    up[i] = rise > fall && rise > 0 ? rise : 0;
    down[i] = fall > rise && fall > 0 ? fall : 0;
  }
  DirectionalMovement out{wilder_mean(up, n), wilder_mean(down, n), {}};
  const Series range = average_true_range(bars, n);
  for (size_t i = 0; i < bars.size(); ++i) {
    out.plus[i] = range[i] > 0 ? 100 * out.plus[i] / range[i] : 0;
    out.minus[i] = range[i] > 0 ? 100 * out.minus[i] / range[i] : 0;
    const double both = out.plus[i] + out.minus[i];
    ratio[i] = both > 0 ? 100 * std::fabs(out.plus[i] - out.minus[i]) / both : 0;
  }
  out.index = wilder_mean(ratio, n);
  return out;
}

Series commodity_channel(std::span<const Bar> bars, size_t n) {
  const Series typical = of_bars(bars, [](const Bar& b) { return (b.high + b.low + b.close) / 3; });
  return over_windows(typical, n, [](std::span<const double> w) {
    const double mean = mean_of(w);
    double away = 0;
    for (const double v : w) away += std::fabs(v - mean);
    away /= static_cast<double>(w.size());
    return away > 1e-12 * mean ? (w.back() - mean) / (0.015 * away) : 0;
  });
}

Series realized_volatility(std::span<const Bar> bars, size_t n) {
  Series squares = log_returns(bars, 1);
  for (double& x : squares) x *= x;
  Series out = moving_mean(squares, n);
  for (double& x : out) x = std::sqrt(kTradingDaysAYear * x);
  return out;
}

Series range_volatility(std::span<const Bar> bars, size_t n) {
  constexpr double kFourLogTwo = 2.772588722239781;
  Series out = moving_mean(of_bars(bars,
                                   [](const Bar& b) {
                                     const double range = exact_log(b.high / b.low);
                                     return range * range / kFourLogTwo;
                                   }),
                           n);
  for (double& x : out) x = std::sqrt(kTradingDaysAYear * x);
  return out;
}

Series day_variance(std::span<const Bar> bars) {
  Series out(bars.size());
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& b = bars[i];
    const double up = exact_log(b.high / b.open), down = exact_log(b.low / b.open), close = exact_log(b.close / b.open);
    const double night = i == 0 ? 0 : exact_log(b.open / bars[i - 1].close);
    out[i] = night * night + std::max(0.0, up * (up - close) + down * (down - close));
  }
  return out;
}

Series estimated_volatility(std::span<const Bar> bars) {
  constexpr size_t kFirst = 20;
  constexpr double kKept = 0.94;
  const Series variance = day_variance(bars);
  Series out(bars.size());
  for (size_t i = 0; i < bars.size(); ++i)
    out[i] = i < kFirst ? mean_of(std::span(variance).first(i + 1)) : kKept * out[i - 1] + (1 - kKept) * variance[i];
  for (double& x : out) x = std::sqrt(kTradingDaysAYear * x);
  return out;
}

}  // namespace tandem
