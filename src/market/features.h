// market/features.h -- the 108 numbers that an agent sees of a day of a symbol, before scaling.
//
// A row is made of bars up to and including its day. It is a pure function of them and of the options, so building it
// again with another future gives the same bits (the look-ahead test relies on it). All numbers are free of the price
// level: ratios, logarithms, shares. Rows with fewer than kHistoryDays bars before them are zeros.
//   1-16     night, high, low and day as log returns, returns over 2 to 60 days, place in the day's and longer ranges
//   17-22    volume against its means, against the day before, with the sign of the returns
//   23-42    RSI, MACD, Bollinger, ATR, stochastic, moving means, directional movement, CCI
//   43-52    realized volatility of 5 to 60 days and its shape
//   53-59    implied volatility, its changes and rank, skew, spread
//   60-99    the 20 options that can be bought: price / spot and delta of each
//   100-102  gamma * spot, vega / spot, theta / spot at the money
//   103-108  weekday, calendar days since the bar before
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/market_data.h"
#include "market/market_view.h"

namespace tandem {

inline constexpr int32_t kHistoryDays = 60;  // that features look back, at most (volume: 250)
inline constexpr int32_t kFirstTradableDay = kHistoryDays + kWindow - 1;  // of a symbol: its window has only whole rows
inline constexpr int32_t kLeastMarketDays = kFirstTradableDay + 22;       // of a symbol: one contract's life

// How a day without quotes of options gets its volatility: the estimate from returns (technicals.h) times `premium`,
// because options cost more than the volatility that follows, on average.
struct FeatureOptions {
  double premium = 1.10;
  double skew = -0.10;
  double rate = 0.03;
  int32_t expiry_days = 21;  // of the options that can be bought
};

// Of each bar, how many bars ago the quotes are that give its volatility: 0 to kStaleDays; more: there are none, and it
// is estimated.
inline constexpr int kStaleDays = 5;
std::vector<int> ages_of_quotes(const MarketSymbol& symbol);

// One per bar. A bar whose quotes say nothing takes what was last known, for kStaleDays days, then the estimate.
std::vector<MarketDay> market_days(const MarketSymbol& symbol, int32_t number, const FeatureOptions& options);

// Appends kMarketFeatures numbers per bar.
void append_features(const MarketSymbol& symbol, std::span<const MarketDay> days, const FeatureOptions& options,
                     std::vector<double>& out);

const std::vector<std::string>& feature_names();  // kMarketFeatures of them, as above

}  // namespace tandem
