// market/options_step.h -- one environment of options on one symbol: its state, reset, step and observation.
//
// Time. The agent sees the close of day t and decides. The order is filled at the open of t + 1 with the volatility and
// spread of t; its strikes and its size come from the close of t. At the close of t + 1 what expires is settled
// (exercised or assigned, in cash), the rest is marked with that day's close and volatility. An option of `days` days
// is worth those days at the close of its decision and at the open after it; a session is a day.
//
// Money. cash + marks = value, exactly, in cents; every cost goes through cash, once. Orders that are impossible (no
// free slot, no such position, cash below what is reserved) do nothing and cost nothing. cash >= reserved, always.
//
// The end. Truncated after `length` days or at the last day of the range; terminated below `ruin` of the capital. A
// step of an episode that has ended changes nothing, its reward is 0 and its end the same.
//
// Same bits on a CPU and a GPU (kernels/portable.h).
#pragma once

#include <type_traits>

#include "kernels/philox.h"
#include "market/options_orders.h"
#include "rl/environment.h"  // lint: allow(order) the interface alone: a header without a library

namespace tandem {

struct OptionPosition {
  OptionLeg legs[kOptionLegs];
  int64_t entry = 0;    // cents paid for a contract when it was opened; negative: received
  int64_t mark = 0;     // cents a contract, at the close of the state's day
  int64_t reserve = 0;  // cents a contract can owe at expiry
  OptionStrategy strategy = OptionStrategy::kNone;
  int32_t contracts = 0;  // 0: the slot is free
  int32_t expiry = 0;     // row of the day at whose close it is settled
  int32_t opened = 0;     // row of the day at whose open it was filled
};

// Of one environment. Whole numbers without gaps: equal states are equal bytes.
struct OptionsState {
  int64_t cash = 0;         // cents, here and below
  int64_t value = 0;        // cash and marks, at the close of `day`
  int64_t peak = 0;         // the largest value of the episode
  int64_t reserved = 0;     // of the cash, for what positions can owe
  int64_t costs = 0;        // of the episode: commission, spread, slippage and rounding
  int64_t traded = 0;       // of the episode: premiums paid and received
  int64_t last_traded = 0;  // of the last step
  int32_t day = 0;          // row of the market
  int32_t last = 0;         // row of the range's last day
  int32_t range = 0;
  int32_t steps = 0, length = 0;                             // so far, and at most
  int32_t end = 0;                                           // an End
  int32_t orders = 0, fills = 0, rejected = 0, settled = 0;  // of the episode; an order is filled or rejected
  int32_t last_order = 0;                                    // 1 filled, -1 rejected, 0 the step had none
  int32_t unused = 0;
  OptionPosition positions[kOptionPositions];
};
static_assert(std::is_trivially_copyable_v<OptionsState> && std::has_unique_object_representations_v<OptionsState>);

struct OptionsOutcome {
  float reward = 0;  // growth of the value, 100 ln(after / before): the same profit is worth the same all along
  int32_t end = 0;   // an End
  float costs = 0, turnover = 0;  // of this step, in percent of the capital
};

// One fill or settlement, for a list of trades.
struct OptionTrade {
  enum class Kind : int32_t { kOpen, kClose, kSettle };
  Kind kind = Kind::kOpen;
  int32_t date = 0, symbol = 0;  // of the day on which it happened
  int32_t action = 0;            // 0 at settlement
  int32_t slot = 0;              // 1 to 5
  int32_t contracts = 0;
  int32_t days_left = 0;  // to expiry, at the close of that day
  OptionStrategy strategy = OptionStrategy::kNone;
  OptionLeg legs[kOptionLegs];  // as held: side 1 long, -1 short
  int64_t received = 0;         // cents a contract; negative: paid
  int64_t commission = 0;       // cents, of all contracts
  int64_t cash_after = 0;       // cents
};
struct NoTradeLog {
  static constexpr bool kKeeps = false;
  TANDEM_HD void operator()(const OptionTrade&) const {}
};

// ---- reset ----

TANDEM_HD void begin_options(OptionsState& state, const MarketView& market, const OptionsRules& rules, int32_t range,
                             int32_t day, int32_t length) {
  state = OptionsState{};
  state.cash = state.value = state.peak = rules.capital_cents;
  state.day = day;
  state.last = market.ranges[range].last;
  state.range = range;
  state.length = length;
}

// Any range, any of its days but the last.
TANDEM_HD void reset_options(OptionsState& state, const MarketView& market, const OptionsRules& rules,
                             const RandomKey& key, int64_t environment) {
  const PhiloxBlock random = random_block(key, static_cast<uint64_t>(environment));
  const auto below = [](uint32_t word, int32_t n) { return static_cast<int32_t>((uint64_t{word} * n) >> 32); };
  const int32_t range = below(random.word[0], market.range_count);
  const MarketView::Range rows = market.ranges[range];
  begin_options(state, market, rules, range, rows.first + below(random.word[1], rows.last - rows.first), rules.episode);
}

// ---- step ----

namespace options {

// The day of the decision, and the open after it: all that an order may know.
struct TradingSession {
  double close, open;
  OptionChain chain;
  int32_t day;           // row of the decision
  int32_t date, symbol;  // of the fill
  int32_t action;
};

template <class Log>
TANDEM_HD void note_trade(Log& log, OptionTrade::Kind kind, const OptionsState& state, const TradingSession& session,
                          int slot, int32_t contracts, int64_t received, int64_t commission) {
  if constexpr (std::remove_reference_t<Log>::kKeeps) {
    const OptionPosition& position = state.positions[slot];
    OptionTrade trade{.kind = kind,
                      .date = session.date,
                      .symbol = session.symbol,
                      .action = kind == OptionTrade::Kind::kSettle ? 0 : session.action,
                      .slot = slot + 1,
                      .contracts = contracts,
                      .days_left = position.expiry - session.day - 1,
                      .strategy = position.strategy,
                      .received = received,
                      .commission = commission,
                      .cash_after = state.cash};
    for (int i = 0; i < kOptionLegs; ++i) trade.legs[i] = position.legs[i];
    log(trade);
  }
}

// Contracts of an order: what is at risk is `order_share` of the value, at the prices of the decision.
TANDEM_HD int32_t contracts_of(const OptionOrder& order, int64_t reserve, const OptionsState& state,
                               const TradingSession& session, const OptionsRules& rules) {
  const OptionFill fill = fill_legs(order.legs, 1, session.chain, session.close, order.days, 0.0, rules);
  const int64_t risk = fill.paid + reserve;
  const double affordable =
      rules.order_share * static_cast<double>(state.value) / static_cast<double>(risk > 1 ? risk : 1);
  if (affordable >= rules.max_contracts) return rules.max_contracts;
  return affordable > 1 ? static_cast<int32_t>(affordable) : 1;
}

// What an order trades. No contracts: it is impossible.
struct TradeIntent {
  int slot = 0;
  int32_t direction = 0;  // 1 opens, -1 closes
  int32_t contracts = 0, days = 0;
  int64_t reserve = 0;  // of a contract
};

TANDEM_HD TradeIntent opening(const OptionsState& state, const TradingSession& session, const OptionOrder& order,
                              const OptionsRules& rules) {
  TradeIntent intent{.direction = 1, .days = order.days, .reserve = reserve_of(order.legs)};
  while (intent.slot < rules.positions && state.positions[intent.slot].contracts != 0) ++intent.slot;
  if (intent.slot < rules.positions) intent.contracts = contracts_of(order, intent.reserve, state, session, rules);
  return intent;
}

TANDEM_HD TradeIntent closing(const OptionsState& state, const TradingSession& session) {
  const int nth = session.action - 21;
  const bool half = nth >= kOptionPositions;
  const int slot = half ? nth - kOptionPositions : nth;
  const OptionPosition& position = state.positions[slot];
  return {.slot = slot,
          .direction = -1,
          .contracts = half && position.contracts > 1 ? position.contracts / 2 : position.contracts,
          .days = position.expiry - session.day,
          .reserve = position.reserve};
}

// Moves the cash of a fill. False: there is not enough, and nothing has changed.
TANDEM_HD bool pay(OptionsState& state, const OptionFill& fill, const TradeIntent& intent, const OptionsRules& rules) {
  const int64_t commission = int64_t{rules.commission_cents} * fill.legs * intent.contracts;
  const int64_t cash = state.cash - fill.paid * intent.contracts - commission;
  const int64_t reserved = state.reserved + intent.direction * intent.reserve * intent.contracts;
  if (cash < reserved) return false;
  state.cash = cash;
  state.reserved = reserved;
  state.costs += fill.cost * intent.contracts + commission;
  state.last_traded = (fill.paid < 0 ? -fill.paid : fill.paid) * intent.contracts;
  state.traded += state.last_traded;
  return true;
}

TANDEM_HD void hold_position(OptionPosition& position, const OptionOrder& order, const OptionFill& fill,
                             const TradeIntent& intent, int32_t day) {
  for (int i = 0; i < kOptionLegs; ++i) position.legs[i] = order.legs[i];
  position.entry = fill.paid;
  position.reserve = intent.reserve;
  position.strategy = order.strategy;
  position.contracts = intent.contracts;
  position.expiry = day + order.days;
  position.opened = day + 1;
}

// True: it is filled.
template <class Log>
TANDEM_HD bool fill_order(OptionsState& state, const TradingSession& session, const OptionsRules& rules, Log& log) {
  const bool closes = session.action > 20 && session.action < kSingleLegActions;
  const OptionOrder order = order_of(session.action, session.close, rules);
  const TradeIntent intent = closes ? closing(state, session) : opening(state, session, order, rules);
  if (intent.contracts == 0) return false;
  OptionPosition& position = state.positions[intent.slot];
  const OptionFill fill = fill_legs(closes ? position.legs : order.legs, intent.direction, session.chain, session.open,
                                    intent.days, slippage_of(intent.contracts, rules), rules);
  if (!pay(state, fill, intent, rules)) return false;
  if (!closes) hold_position(position, order, fill, intent, session.day);
  note_trade(log, closes ? OptionTrade::Kind::kClose : OptionTrade::Kind::kOpen, state, session, intent.slot,
             intent.contracts, -fill.paid, int64_t{rules.commission_cents} * fill.legs * intent.contracts);
  if (!closes) return true;
  position.contracts -= intent.contracts;
  if (position.contracts == 0) position = OptionPosition{};
  return true;
}

template <class Log>
TANDEM_HD void place_order(OptionsState& state, const TradingSession& session, const OptionsRules& rules, Log& log) {
  state.last_order = 0;
  state.last_traded = 0;
  if (session.action == 0) return;
  const bool filled = fill_order(state, session, rules, log);
  ++state.orders;
  ++(filled ? state.fills : state.rejected);
  state.last_order = filled ? 1 : -1;
}

// At the close of `row`: settles what expires and marks the rest.
template <class Log>
TANDEM_HD void settle_and_mark(OptionsState& state, const MarketDay& today, const TradingSession& session, int32_t row,
                               const OptionsRules& rules, Log& log) {
  const OptionChain chain = chain_of(today, rules);
  int64_t marks = 0;
  for (int slot = 0; slot < kOptionPositions; ++slot) {
    OptionPosition& position = state.positions[slot];
    if (position.contracts == 0) continue;
    if (position.expiry == row) {
      const int64_t payoff = payoff_of(position.legs, to_nearest_cent(today.close * kCentsOfContract));
      state.cash += payoff * position.contracts;
      state.reserved -= position.reserve * position.contracts;
      ++state.settled;
      note_trade(log, OptionTrade::Kind::kSettle, state, session, slot, position.contracts, payoff, 0);
      position = OptionPosition{};
      continue;
    }
    position.mark = 0;
    for (int i = 0; i < kOptionLegs && position.legs[i].side != 0; ++i) {
      const OptionQuote quote = quote_of(position.legs[i], chain, today.close, position.expiry - row, rules);
      position.mark += position.legs[i].side * mark_of(quote.mid);
    }
    marks += position.mark * position.contracts;
  }
  state.value = state.cash + marks;
}

TANDEM_HD End end_of(const OptionsState& state, const OptionsRules& rules) {
  if (static_cast<double>(state.value) < rules.ruin * static_cast<double>(rules.capital_cents)) return End::kTerminated;
  return state.steps >= state.length || state.day >= state.last ? End::kTruncated : End::kNone;
}

TANDEM_HD float percent_of_capital(int64_t cents, const OptionsRules& rules) {
  return static_cast<float>(100.0 * static_cast<double>(cents) / static_cast<double>(rules.capital_cents));
}

TANDEM_HD float growth_percent(int64_t before, int64_t after) {
  return static_cast<float>(100.0 *
                            exact_log(static_cast<double>(after > 1 ? after : 1) / static_cast<double>(before)));
}

}  // namespace options

// `action` below rules.actions().
template <class Log>
TANDEM_HD OptionsOutcome step_options(OptionsState& state, int32_t action, const MarketView& market,
                                      const OptionsRules& rules, Log&& log) {
  if (state.end != 0) return {.end = state.end};
  const int64_t value_before = state.value, costs_before = state.costs;
  const MarketDay &decided = market.days[state.day], &today = market.days[state.day + 1];
  const options::TradingSession session{decided.close, today.open, chain_of(decided, rules), state.day, today.date,
                                        today.symbol,  action};
  options::place_order(state, session, rules, log);
  ++state.day;
  ++state.steps;
  options::settle_and_mark(state, today, session, state.day, rules, log);
  if (state.value > state.peak) state.peak = state.value;
  state.end = static_cast<int32_t>(options::end_of(state, rules));
  return {.reward = options::growth_percent(value_before, state.value),
          .end = state.end,
          .costs = options::percent_of_capital(state.costs - costs_before, rules),
          .turnover = options::percent_of_capital(state.last_traded, rules)};
}

}  // namespace tandem
