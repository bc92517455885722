// market/options_play.h -- one continuous episode over the days of a range: what was decided, what came of it.
//
// An evaluation plays each symbol's test days once, from the first to the last, with its own capital. The worker that
// plays and the command that judges exchange it as JSON.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "market/options_environment.h"
#include "market/performance.h"

namespace tandem {

// dates[0] is the day of the first decision, equity_cents[0] the capital. actions[i] was decided at the close of
// dates[i], so there is one less. After ruin the value stays as it was, and the actions are 0. The last value is what
// the portfolio would bring, sold at that close with all costs.
struct SymbolPlay {
  std::string symbol;
  std::vector<int32_t> dates;
  std::vector<int64_t> equity_cents;
  std::vector<int32_t> actions;
  std::vector<OptionTrade> trades;
  // Of each decision, a hash of all that it was made from: for the look-ahead test, in no JSON. Empty: not known.
  std::vector<uint64_t> seen = {};
};

// The play of one symbol, a day at a time: of a policy that decides for several symbols at once.
class RangePlay {
 public:
  RangePlay(const OptionsEnvironment& environment, int32_t range, std::string symbol);
  bool done() const { return row_ == last_; }
  const OptionsState& state() const { return state_; }
  // Decided at the close of the state's day, from what has the hash `seen`; after ruin it does nothing.
  void take(int32_t action, std::optional<uint64_t> seen = std::nullopt);
  SymbolPlay& result() { return play_; }

 private:
  void note_day();
  const OptionsEnvironment& environment_;
  SymbolPlay play_;
  OptionsState state_;
  int32_t row_, last_;
};

using OptionsPolicy = std::function<int32_t(const OptionsState&)>;  // the action for the close of the state's day
SymbolPlay play_range(const OptionsEnvironment& environment, int32_t range, std::string symbol,
                      const OptionsPolicy& policy);

// Positions from their first fill to their last. Those that are open at the end have no date of closing.
std::vector<ClosedTrade> closed_trades(const SymbolPlay& play);
EquityCurve equity_curve(const SymbolPlay& play);  // with `held`

// {"symbol", "dates", "equity_cents", "actions", "trades": [{"date", "kind": "open" | "close" | "settle", "action",
// "position", "strategy", "legs": [[side, put, strike in cents of 100 shares], ...], "days_left", "contracts",
// "received": cents a contract, "commission": cents, "cash_after": cents}, ...]}
nlohmann::json json_of_play(const SymbolPlay& play);
// Throws Error where it is not such an object: the worker is of another version.
SymbolPlay play_of_json(const nlohmann::json& from);

}  // namespace tandem
