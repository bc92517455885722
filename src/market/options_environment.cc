#include "market/options_environment.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "base/errors.h"

namespace tandem {
namespace {

OptionsState* options_states(std::byte* states) { return reinterpret_cast<OptionsState*>(states); }

Outcome outcome_of(const OptionsOutcome& from) {
  Outcome out{.reward = from.reward, .end = static_cast<End>(from.end)};
  out.terms[0] = from.costs;
  out.terms[1] = from.turnover;
  return out;
}

struct TradeList {
  static constexpr bool kKeeps = true;
  std::vector<OptionTrade>& trades;
  void operator()(const OptionTrade& trade) const { trades.push_back(trade); }
};

template <class T>
void check_rule(const char* name, T value, T least, T most, const char* why) {
  if (value >= least && value <= most) return;  // not so for NaN
  throw ConfigError(fmt::format("options: {} = {} is out of its range", name, value), why,
                    fmt::format("set {} to a value from {} to {}", name, least, most));
}

std::string currency_text(int64_t cents_of_contract) {
  return fmt::format("{:.4f}", static_cast<double>(cents_of_contract) / kCentsOfContract);
}
std::string cents_text(int64_t cents) {
  return fmt::format("{}{}.{:02}", cents < 0 ? "-" : "", std::abs(cents) / 100, std::abs(cents) % 100);
}

}  // namespace

void check_options_rules(const OptionsRules& r) {
  check_rule<int64_t>("capital in cents", r.capital_cents, 1'00, int64_t{1} << 50,
                      "an episode begins with this much cash");
  check_rule("order_share", r.order_share, 1e-6, 1.0, "it is the share of the portfolio that an order puts at risk");
  check_rule("spread", r.spread, 0.0, 1.0, "it is the bid-ask spread as a share of the mid price");
  check_rule("spread_far", r.spread_far, 0.0, 1.0, "with `spread` it must stay below twice the mid price");
  check_rule("far", r.far, 1e-6, 100.0, "it is the distance |ln(strike / spot)| from which the spread is widest");
  check_rule("slippage", r.slippage, 0.0, 0.5, "it is a share of the price");
  check_rule("slippage_contracts", r.slippage_contracts, 1e-3, 1e9, "slippage doubles at so many contracts");
  check_rule("slippage of the largest order", r.slippage * (1 + r.max_contracts / r.slippage_contracts), 0.0, 0.9,
             "an option can't be sold below 0");
  check_rule("rate", r.rate, -1.0, 1.0, "it is a yearly interest rate: .03 is 3 percent");
  check_rule("ruin", r.ruin, 0.0, 0.99, "an episode ends when the value falls below this share of the capital");
  check_rule("positions", r.positions, 1, kOptionPositions, "there are actions for so many positions");
  check_rule("max_contracts", r.max_contracts, 1, 1'000'000, "it is the largest order");
  check_rule("expiry_days", r.expiry_days, 1, 2520, "an order is filled on the day after it was decided");
  check_rule("second_expiry_days", r.second_expiry_days, 1, 2520, "an order is filled on the day after it was decided");
  check_rule("episode", r.episode, 1, 1'000'000, "it is the length of an episode in days");
  check_rule("commission in cents", r.commission_cents, 0, 100'000'00, "it is per contract and leg");
  check_rule("multi_leg", r.multi_leg, 0, 1, "it is off or on");
}

OptionsEnvironment::OptionsEnvironment(const MarketView& market, const OptionsRules& rules)
    : market_(market), rules_(rules) {
  check_options_rules(rules_);
  check_market();
}

void OptionsEnvironment::check_market() const {
  if (market_.range_count < 1)
    throw ConfigError("options: the market has no range of days to trade on", "every symbol is shorter than it must be",
                      "give longer price histories, or fewer folds");
  for (int32_t r = 0; r < market_.range_count; ++r) {
    const auto [first, last] = market_.ranges[r];
    const auto refuse = [&, first = first, last = last](const std::string& why) {
      throw ConfigError(fmt::format("options: rows {} to {} of the market can't be traded on", first, last), why,
                        "check the data with `tandem data check options DIR`");
    };
    if (last <= first) refuse("a range needs two days: one to decide on and one to trade on");
    if (first < kWindow - 1 || last >= market_.rows)
      refuse(
          fmt::format("a range needs {} days before it, and must lie within the {} rows", kWindow - 1, market_.rows));
    for (int32_t row = first - kWindow + 1; row <= last; ++row) {
      const MarketDay& day = market_.days[row];
      if (day.symbol != market_.days[last].symbol)
        refuse(fmt::format("row {}, within the {} days before it or the range itself, is of another symbol", row,
                           kWindow - 1));
      const auto priced = [](double x) { return std::isfinite(x) && x > 0 && x < 1e9; };
      if (!priced(day.open) || !priced(day.close) || !priced(day.volatility) || !std::isfinite(day.skew) ||
          !std::isfinite(day.spread))
        refuse(fmt::format("open, close or volatility of {} is not a number above 0 and below 1e9", day.date));
    }
  }
}

void OptionsEnvironment::check_action(int32_t action) const {
  if (action < 0 || action >= rules_.actions())
    throw std::out_of_range(fmt::format("options: action {} of {}", action, rules_.actions()));
}

int64_t OptionsEnvironment::liquidation_cents(const OptionsState& state) const {
  const MarketDay& today = market_.days[state.day];
  const OptionChain chain = chain_of(today, rules_);
  int64_t value = state.cash;
  for (const OptionPosition& position : state.positions) {
    if (position.contracts == 0) continue;
    const OptionFill fill = fill_legs(position.legs, -1, chain, today.close, position.expiry - state.day,
                                      slippage_of(position.contracts, rules_), rules_);
    value -= (fill.paid + int64_t{rules_.commission_cents} * fill.legs) * position.contracts;
  }
  return value;
}

std::vector<ActionRule> OptionsEnvironment::action_rules() const {
  constexpr int32_t kFirstSell = 21, kLastSell = 30, kUsedSlots = 3, kFirstContracts = 9, kOfSlot = 8;
  constexpr float kSome = 1e-7f, kAll = 0.999f, kMany = 1e9f;
  std::vector<ActionRule> rules(static_cast<size_t>(actions()), ActionRule{kUsedSlots, 0, kAll});
  rules[0] = {};
  for (int32_t action = kFirstSell; action <= kLastSell; ++action)
    rules[static_cast<size_t>(action)] = {kFirstContracts + (action - kFirstSell) % kOptionPositions * kOfSlot, kSome,
                                          kMany};
  return rules;
}

void OptionsEnvironment::reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const {
  for (int64_t i = 0; i < n; ++i)
    if (!only_ended || only_ended[i].end != End::kNone)
      reset_options(options_states(states)[i], market_, rules_, key, i);
}

void OptionsEnvironment::observe(const std::byte* states, float* out, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) observe_options(state_at(states, i), market_, rules_, out + i * kOwnFeatures);
}

void OptionsEnvironment::step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n,
                              const RandomKey& /*key*/) const {
  for (int64_t i = 0; i < n; ++i) check_action(actions[i]);
  for (int64_t i = 0; i < n; ++i)
    out[i] = outcome_of(step_options(options_states(states)[i], actions[i], market_, rules_, NoTradeLog{}));
}

void OptionsEnvironment::table_rows(const std::byte* states, int32_t* out, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) out[i] = state_at(states, i).day;
}

OptionsState OptionsEnvironment::begin(int32_t range, int32_t day, int32_t length) const {
  if (range < 0 || range >= market_.range_count || length < 1 || day < market_.ranges[range].first ||
      day >= market_.ranges[range].last)
    throw std::out_of_range(fmt::format("options: no episode of {} days at row {} of range {}", length, day, range));
  OptionsState state;
  begin_options(state, market_, rules_, range, day, length);
  return state;
}

OptionsState OptionsEnvironment::begin(int32_t range) const {
  if (range < 0 || range >= market_.range_count)
    throw std::out_of_range(fmt::format("options: range {} of {}", range, market_.range_count));
  const auto [first, last] = market_.ranges[range];
  return begin(range, first, last - first);
}

Outcome OptionsEnvironment::step_one(OptionsState& state, int32_t action, std::vector<OptionTrade>* trades) const {
  check_action(action);
  return outcome_of(trades ? step_options(state, action, market_, rules_, TradeList{*trades})
                           : step_options(state, action, market_, rules_, NoTradeLog{}));
}

const char* name_of(OptionStrategy strategy) {
  constexpr const char* kNames[] = {"none",
                                    "call",
                                    "put",
                                    "bull_call_spread",
                                    "bear_put_spread",
                                    "bull_put_spread",
                                    "bear_call_spread",
                                    "straddle",
                                    "strangle",
                                    "iron_condor",
                                    "butterfly"};
  return kNames[static_cast<int>(strategy)];
}

std::string legs_text(const OptionLeg* legs) {
  std::string text;
  for (int i = 0; i < kOptionLegs && legs[i].side != 0; ++i)
    text += fmt::format("{}{}{} {:.2f}", text.empty() ? "" : " ", legs[i].side > 0 ? "+" : "-",
                        legs[i].put ? "put" : "call", strike_of(legs[i]));
  return text;
}

std::string trade_header() {
  return "date,symbol,kind,action,position,strategy,legs,days_left,contracts,price,commission,cash_after";
}

std::string trade_line(const OptionTrade& t, const std::string& symbol) {
  constexpr const char* kKinds[] = {"open", "close", "settle"};
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", t.date, symbol, kKinds[static_cast<int>(t.kind)], t.action,
                     t.slot, name_of(t.strategy), legs_text(t.legs), t.days_left, t.contracts,
                     currency_text(t.received), cents_text(t.commission), cents_text(t.cash_after));
}

}  // namespace tandem
