// market/forecast_targets.h -- what pre-training asks of each day: price, volatility and volume of the next one.
//
//   0  its return, in deviations that the implied volatility of the day leads to expect
//   1  its range, ln(high / low), in the same deviations, less 1.6: what a walk without a drift has on average
//   2  its volume, ln(volume / mean of 20 days up to the day)
// Within +-5. A symbol's last day has none: zeros. These look ahead, by their nature: no observation has them.
#pragma once

#include <span>
#include <vector>

#include "market/market_data.h"
#include "market/market_view.h"

namespace tandem {

// Appends kForecasts numbers per bar.
void append_forecast_targets(const MarketSymbol& symbol, std::span<const MarketDay> days, std::vector<float>& out);

}  // namespace tandem
