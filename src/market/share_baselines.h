// market/share_baselines.h -- the baselines that hold shares of one symbol: over one range, with its own capital.
#pragma once

#include <string>
#include <vector>

#include "market/options_orders.h"
#include "market/performance.h"

namespace tandem {

struct ShareResult {
  EquityCurve curve;
  std::vector<ClosedTrade> trades;
  std::string note;  // empty: there is nothing to say
};

// Decides at the close of range.first and buys at the next open; `share_cost`: of a share's price. The last value of
// either curve is what a sale of everything at that close would bring, costs in, as the agent's is.
ShareResult hold_shares(const MarketView& market, const MarketView::Range& range, const OptionsRules& rules,
                        double share_cost, const std::string& symbol);

// The shares that are assigned are a trade at that day's close, and the call one that was bought back for what it paid:
// together they are the strike.
ShareResult write_covered_calls(const MarketView& market, const MarketView::Range& range, const OptionsRules& rules,
                                double share_cost, const std::string& symbol);

}  // namespace tandem
