#include "market/options_play.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
constexpr std::array<std::string_view, 3> kTradeKinds = {"open", "close", "settle"};
constexpr int kLastStrategy = static_cast<int>(OptionStrategy::kButterfly);

Json json_of_trade(const OptionTrade& trade) {
  Json legs = Json::array();
  for (const OptionLeg& leg : trade.legs)
    if (leg.side != 0) legs.push_back({leg.side, leg.put, leg.strike});
  return {{"date", trade.date},
          {"kind", kTradeKinds[static_cast<size_t>(trade.kind)]},
          {"action", trade.action},
          {"position", trade.slot},
          {"strategy", name_of(trade.strategy)},
          {"legs", std::move(legs)},
          {"days_left", trade.days_left},
          {"contracts", trade.contracts},
          {"received", trade.received},
          {"commission", trade.commission},
          {"cash_after", trade.cash_after}};
}

OptionTrade trade_of_json(const Json& from) {
  OptionTrade trade{.date = from.at("date"),
                    .action = from.at("action"),
                    .slot = from.at("position"),
                    .contracts = from.at("contracts"),
                    .days_left = from.at("days_left"),
                    .received = from.at("received"),
                    .commission = from.at("commission"),
                    .cash_after = from.at("cash_after")};
  const std::string kind = from.at("kind"), strategy = from.at("strategy");
  size_t k = 0;
  while (k < kTradeKinds.size() && kTradeKinds[k] != kind) ++k;
  int s = 0;
  while (s <= kLastStrategy && strategy != name_of(static_cast<OptionStrategy>(s))) ++s;
  const Json& legs = from.at("legs");
  if (k == kTradeKinds.size() || s > kLastStrategy || legs.size() > kOptionLegs || trade.slot < 1 ||
      trade.slot > kOptionPositions)
    throw std::invalid_argument(fmt::format("trade of kind {}, strategy {}", kind, strategy));
  trade.kind = static_cast<OptionTrade::Kind>(k);
  trade.strategy = static_cast<OptionStrategy>(s);
  for (size_t i = 0; i < legs.size(); ++i)
    trade.legs[i] = {.strike = legs[i].at(2), .put = legs[i].at(1), .side = legs[i].at(0)};
  return trade;
}

int64_t cash_of(const OptionTrade& trade) { return trade.received * trade.contracts - trade.commission; }

}  // namespace

RangePlay::RangePlay(const OptionsEnvironment& environment, int32_t range, std::string symbol)
    : environment_(environment),
      play_{.symbol = std::move(symbol)},
      state_(environment.begin(range)),
      row_(environment.market().ranges[range].first),
      last_(environment.market().ranges[range].last) {
  note_day();
}

void RangePlay::note_day() {
  play_.dates.push_back(environment_.market().days[row_].date);
  play_.equity_cents.push_back(OptionsEnvironment::equity_cents(state_));
}

void RangePlay::take(int32_t action, std::optional<uint64_t> seen) {
  if (seen) play_.seen.push_back(*seen);
  if (state_.end != 0) action = 0;
  environment_.step_one(state_, action, &play_.trades);
  play_.actions.push_back(action);
  ++row_;
  note_day();
  if (done()) play_.equity_cents.back() = environment_.liquidation_cents(state_);
}

SymbolPlay play_range(const OptionsEnvironment& environment, int32_t range, std::string symbol,
                      const OptionsPolicy& policy) {
  RangePlay play(environment, range, std::move(symbol));
  while (!play.done()) play.take(play.state().end == 0 ? policy(play.state()) : 0);
  return std::move(play.result());
}

std::vector<ClosedTrade> closed_trades(const SymbolPlay& play) {
  std::vector<ClosedTrade> out;
  struct OpenSlot {
    ClosedTrade trade;
    int32_t contracts = 0;
  };
  std::array<OpenSlot, kOptionPositions> slots;
  for (const OptionTrade& trade : play.trades) {
    OpenSlot& slot = slots[static_cast<size_t>(trade.slot - 1)];
    if (trade.kind == OptionTrade::Kind::kOpen) {
      slot.trade = {.symbol = play.symbol, .opened = trade.date};
      slot.contracts = trade.contracts;
    } else {
      slot.contracts -= trade.contracts;
    }
    (trade.received < 0 ? slot.trade.bought_cents : slot.trade.sold_cents) +=
        trade.received < 0 ? -cash_of(trade) : cash_of(trade);
    if (trade.kind == OptionTrade::Kind::kOpen || slot.contracts > 0) continue;
    slot.trade.closed = trade.date;
    out.push_back(slot.trade);
    slot = OpenSlot{};
  }
  for (const OpenSlot& slot : slots)
    if (slot.contracts > 0) out.push_back(slot.trade);
  return out;
}

EquityCurve equity_curve(const SymbolPlay& play) {
  EquityCurve curve{.name = play.symbol, .dates = play.dates, .cents = play.equity_cents};
  std::array<int32_t, kOptionPositions> open{};
  size_t next = 0;
  for (const int32_t date : play.dates) {
    for (; next < play.trades.size() && play.trades[next].date <= date; ++next) {
      const OptionTrade& trade = play.trades[next];
      open[static_cast<size_t>(trade.slot - 1)] +=
          trade.kind == OptionTrade::Kind::kOpen ? trade.contracts : -trade.contracts;
    }
    bool any = false;
    for (const int32_t contracts : open) any = any || contracts > 0;
    curve.held.push_back(any ? 1 : 0);
  }
  return curve;
}

Json json_of_play(const SymbolPlay& play) {
  Json trades = Json::array();
  for (const OptionTrade& trade : play.trades) trades.push_back(json_of_trade(trade));
  return {{"symbol", play.symbol},
          {"dates", play.dates},
          {"equity_cents", play.equity_cents},
          {"actions", play.actions},
          {"trades", std::move(trades)}};
}

SymbolPlay play_of_json(const Json& from) {
  try {
    SymbolPlay play{.symbol = from.at("symbol"),
                    .dates = from.at("dates"),
                    .equity_cents = from.at("equity_cents"),
                    .actions = from.at("actions")};
    for (const Json& trade : from.at("trades")) play.trades.push_back(trade_of_json(trade));
    if (play.dates.size() != play.equity_cents.size() || play.dates.size() != play.actions.size() + 1)
      throw std::invalid_argument(fmt::format("{} dates, {} values and {} actions", play.dates.size(),
                                              play.equity_cents.size(), play.actions.size()));
    return play;
  } catch (const std::exception& error) {
    throw Error(ExitCode::kFailed, "the worker's answer about the options cannot be read", error.what(),
                "use a tandem and a tandem-worker of the same version");
  }
}

}  // namespace tandem
