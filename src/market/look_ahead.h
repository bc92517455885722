// market/look_ahead.h -- does an agent see the future? Its play is repeated with other prices after a day: nothing that
// it saw, decided or was worth up to that day may change.
//
// What is repeated is everything between data and decision: features, their scaler, folds, environment and policy. So a
// feature that peeks, a scaler that is fitted on days of the test, or an order whose day is worth what a later price
// makes of it are found alike. Not repeated is the training: what the weights learned from is the folds' promise
// (folds.h). And an order that is filled before it is decided changes with no future: that is options_timing_test.cc's.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "market/market_data.h"
#include "market/options_play.h"

namespace tandem {

// The first day of a symbol on which something changed with the future.
struct LookAheadFinding {
  std::string symbol;
  int32_t changed_after = 0;  // date: days after it had other prices
  int32_t date = 0;           // on or before it
  int32_t action = 0, action_then = 0;
  int64_t equity_cents = 0, equity_cents_then = 0;
};

struct LookAhead {
  int32_t cuts = 0;               // futures that were tried
  int64_t days_checked = 0;       // days of symbols that were compared
  int64_t decisions_exposed = 0;  // of them, decisions on the last day before a changed one: there a leak shows
  bool future_matters = false;    // some play went otherwise after a cut; else nothing was tested
  std::optional<LookAheadFinding> first_difference;
};

// `plays` is what play_market(data) gives. Of the days that were played, `cuts` are taken, evenly spread, and what
// comes after each is changed.
using PlayMarket = std::function<std::vector<SymbolPlay>(const MarketData&)>;
LookAhead find_look_ahead(const MarketData& data, const std::vector<SymbolPlay>& plays, const PlayMarket& play_market,
                          int32_t cuts, uint64_t seed = 1);

// {"verdict": "none" | "found" | "untested", "cuts", "days_checked", "decisions_exposed", "first_difference": null or
// an object}
nlohmann::json json_of_look_ahead(const LookAhead& found);

}  // namespace tandem
