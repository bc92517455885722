// market/baselines.h -- what an agent must beat: the same days, the same capital for each symbol, the same costs.
//
// All decide at a close with what is known then, and trade at the next open, as the agent does. What is open at the end
// counts for what its sale at the last close would bring, costs in:
//   cash            does nothing
//   buy and hold    shares of each symbol with all its capital, on the first day; each costs `share_cost` of its price
//   covered call    lots of 100 shares; sells a call of each lot, `expiry_days` to go, 2 % above the close; is assigned
//                   where it ends above its strike, and buys new shares then; options at the environment's costs
//   random          any possible action with the same probability; of `players` of them the one with the median return
//   rsi             one position: an at-the-money call where RSI(14) < 30, a put where it is > 70; sold when it is back
//                   across 50
//   macd            one position: an at-the-money call where MACD(12, 26) crosses above its signal (9), a put where it
//                   crosses below; the opposite cross sells what is held
//   always a call   one at-the-money call, held to expiry; then the next
//   known rule      of a generated market with an edge alone: what its volume tells (generated_market.h). Calls in
//                   every slot while it says up, puts while it says down, the others sold first; the strike that earned
//                   most on the training days
// RSI is Wilder's, MACD of exponential means; both begin with the symbol's first day of the market.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "market/options_play.h"

namespace tandem {

struct BaselinePlan {
  uint64_t seed = 1;          // of random
  int32_t players = 100;      // random ones
  double share_cost = .0005;  // of a share's price, each way: half the spread and slippage
  // Of each row of the market -1 or +1, for the known rule; empty: there is none. And where it learns its strike.
  std::vector<int8_t> directions = {};
  const OptionsEnvironment* training = nullptr;
};

struct Baseline {
  std::string name, what;
  EquityCurve curve;  // the sum over all symbols
  std::vector<ClosedTrade> trades;
  std::vector<std::string> notes;  // "BRK: 100 shares cost more than the capital, it stays in cash"
};

struct Baselines {
  std::vector<Baseline> list;          // in the order above
  std::vector<double> random_returns;  // total return of each random player, sorted
};

// Over the ranges of the environment's market; `names` of its symbols by their number.
Baselines play_baselines(const OptionsEnvironment& environment, const std::vector<std::string>& names,
                         const BaselinePlan& plan = {});

// {"list": [{"name", "what", "dates", "cents", "held", "trades": [[symbol, opened, closed, bought, sold], ...],
// "notes"}], "random_returns"}
nlohmann::json json_of_baselines(const Baselines& baselines);
Baselines baselines_of_json(const nlohmann::json& from);  // throws Error as play_of_json()

// ---- their parts ----

// Of each row of a symbol from `first` on: RSI(14), 0 to 100, 50 until there are 14 changes.
std::vector<double> rsi_of(const MarketView& market, int32_t first, int32_t last);
// MACD(12, 26) less its signal (9).
std::vector<double> macd_of(const MarketView& market, int32_t first, int32_t last);

}  // namespace tandem
