// market/market_view.h -- the days of all symbols as the environment reads them, on a CPU or a GPU.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int kMarketFeatures = 108;  // of a day, in the table that all environments share
inline constexpr int kOwnFeatures = 52;      // of a portfolio
inline constexpr int kWindow = 20;           // days that the net sees
inline constexpr int kForecasts = 3;         // numbers of the next day, for pre-training

// One day of one symbol. Prices in the currency's units, after splits.
struct MarketDay {
  double open = 0, high = 0, low = 0, close = 0;
  double volatility = 0;  // implied, of an option at the money with a month to go, a year's; as known at the close
  double skew = 0;        // what is added to it for each unit of ln(strike / spot) / sqrt(years)
  double spread = 0;      // bid to ask of an option at the money, as a share of its price; 0: the recipe's own
  int32_t date = 0;       // 20241231
  int32_t symbol = 0;
};

// All symbols, one after the other; a symbol's days are in order. The memory belongs to whoever made it.
struct MarketView {
  const MarketDay* days = nullptr;
  const float* features = nullptr;   // [rows, kMarketFeatures], scaled by what the training days have
  const float* forecasts = nullptr;  // [rows, kForecasts]: of the day after each (forecast_targets.h); or none
  int64_t rows = 0;
  // Where an episode may begin and must end: of each range, rows [first, last]. An episode begins at `first` or later,
  // and is cut at `last`.
  struct Range {
    int32_t first = 0, last = 0;
  };
  const Range* ranges = nullptr;
  int32_t range_count = 0;
};

}  // namespace tandem
