// market/technicals.h -- technical indicators of a series of bars, by their textbook formulas.
//
// Each function gives one number per bar, made of this bar and bars before it only. Where fewer bars are there than the
// formula asks for, it takes those that are there. Wilder's averages begin with the plain mean of the first n values.
// No libm but sqrt: the same bits on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "market/bars.h"

namespace tandem {

using Series = std::vector<double>;

Series moving_mean(std::span<const double> x, size_t n);
Series moving_deviation(std::span<const double> x, size_t n);  // divides by n
Series moving_max(std::span<const double> x, size_t n);
Series moving_min(std::span<const double> x, size_t n);
// Weight 2 / (n + 1) for the newest; begins with the first value.
Series exponential_mean(std::span<const double> x, size_t n);
Series wilder_mean(std::span<const double> x, size_t n);

Series closes_of(std::span<const Bar> bars);
// ln(close / close of `lag` bars before); 0 where there is none.
Series log_returns(std::span<const Bar> bars, size_t lag);

Series relative_strength(std::span<const Bar> bars, size_t n);  // RSI, 0 to 100; 50 where nothing moved

struct Macd {
  Series line, signal;
};
Macd macd(std::span<const Bar> bars, size_t fast, size_t slow, size_t signal);

struct Bollinger {
  Series position;  // (close - mean) / (2 deviations); 0 where the deviation is
  Series width;     // 4 deviations / mean
};
Bollinger bollinger(std::span<const Bar> bars, size_t n);

Series average_true_range(std::span<const Bar> bars, size_t n);

struct Stochastic {
  Series k, d;  // 0 to 100; d is the mean of three k
};
Stochastic stochastic(std::span<const Bar> bars, size_t n);

struct DirectionalMovement {
  Series plus, minus, index;  // +DI, -DI, ADX: 0 to 100
};
DirectionalMovement directional_movement(std::span<const Bar> bars, size_t n);

Series commodity_channel(std::span<const Bar> bars, size_t n);  // CCI

// A year's volatility of n daily log returns, mean 0 taken as known.
Series realized_volatility(std::span<const Bar> bars, size_t n);
// From highs and lows (Parkinson).
Series range_volatility(std::span<const Bar> bars, size_t n);
// Variance of each day: the night's squared return + Rogers and Satchell's of the session.
Series day_variance(std::span<const Bar> bars);
// A year's, from day_variance by exponential weights (.94 for each day before; the plain mean of the first 20 days).
Series estimated_volatility(std::span<const Bar> bars);

}  // namespace tandem
