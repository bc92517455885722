#include "market/look_ahead.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tandem {
namespace {

// Decisions at the closes up to the cut, and what the portfolio was worth then.
void compare_plays(const SymbolPlay& before, const SymbolPlay& then, int32_t cut, LookAhead& found) {
  if (before.dates != then.dates || before.symbol != then.symbol)
    throw std::logic_error("a play of " + then.symbol + " with another future has other days");
  for (size_t i = 0; i < before.dates.size(); ++i) {
    const bool decided = i < before.actions.size();
    const bool same_seen = !decided || before.seen.empty() || before.seen.at(i) == then.seen.at(i);
    const bool same = same_seen && before.equity_cents[i] == then.equity_cents[i] &&
                      (!decided || before.actions[i] == then.actions[i]);
    if (before.dates[i] > cut) {
      found.future_matters = found.future_matters || !same;
      continue;
    }
    ++found.days_checked;
    found.decisions_exposed += decided && before.dates[i + 1] > cut ? 1 : 0;
    if (same) continue;
    if (!found.first_difference)
      found.first_difference = LookAheadFinding{.symbol = before.symbol,
                                                .changed_after = cut,
                                                .date = before.dates[i],
                                                .action = decided ? before.actions[i] : 0,
                                                .action_then = decided ? then.actions[i] : 0,
                                                .equity_cents = before.equity_cents[i],
                                                .equity_cents_then = then.equity_cents[i]};
    return;
  }
}

}  // namespace

LookAhead find_look_ahead(const MarketData& data, const std::vector<SymbolPlay>& plays, const PlayMarket& play_market,
                          int32_t cuts, uint64_t seed) {
  std::vector<int32_t> dates;
  for (const SymbolPlay& play : plays) dates.insert(dates.end(), play.dates.begin(), play.dates.end());
  std::ranges::sort(dates);
  dates.erase(std::unique(dates.begin(), dates.end()), dates.end());
  if (dates.size() < 2) throw std::logic_error("nothing was played");
  LookAhead found;
  const auto last = static_cast<int32_t>(dates.size()) - 2;  // there is no future after the last day
  for (int32_t k = 0; k < cuts; ++k) {
    const int32_t cut = dates[static_cast<size_t>((k + 1) * int64_t{last} / cuts)];
    const std::vector<SymbolPlay> then = play_market(perturbed_after(data, cut, seed + static_cast<uint64_t>(k)));
    if (then.size() != plays.size()) throw std::logic_error("a play with another future has other symbols");
    for (size_t i = 0; i < plays.size(); ++i) compare_plays(plays[i], then[i], cut, found);
    ++found.cuts;
  }
  return found;
}

nlohmann::json json_of_look_ahead(const LookAhead& found) {
  nlohmann::json first;
  if (const auto& one = found.first_difference)
    first = {{"symbol", one->symbol},
             {"changed_after", one->changed_after},
             {"date", one->date},
             {"action", one->action},
             {"action_then", one->action_then},
             {"equity_cents", one->equity_cents},
             {"equity_cents_then", one->equity_cents_then}};
  return {{"verdict", found.first_difference ? "found"
                      : found.future_matters ? "none"
                                             : "untested"},
          {"cuts", found.cuts},
          {"days_checked", found.days_checked},
          {"decisions_exposed", found.decisions_exposed},
          {"first_difference", first}};
}

}  // namespace tandem
