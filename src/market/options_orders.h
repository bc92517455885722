// market/options_orders.h -- what an action orders, and what it costs: strikes, quotes, fills, payoffs and reserves.
//
// Money is in whole cents. A fill price is rounded to a whole cent a share against the trader (bought up, sold down);
// a mark or a payoff is in whole cents a contract. Same bits on a CPU and a GPU (kernels/portable.h).
#pragma once

#include "market/market_view.h"
#include "market/option_math.h"
#include "market/options_rules.h"

namespace tandem {

inline constexpr double kCentsOfContract = 100.0 * kSharesOfContract;  // of one unit of the currency a share
inline constexpr double kVolatilityFloor = 0.05;                       // of any strike

TANDEM_HD int64_t to_nearest_cent(double x) { return static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5); }
// Of x >= 0.
TANDEM_HD int64_t up_to_cent(double x) {
  const auto below = static_cast<int64_t>(x);
  return static_cast<double>(below) < x ? below + 1 : below;
}

// ---- orders ----

TANDEM_HD OptionLeg leg_at(double close, int32_t percent, int32_t put, int32_t side) {
  const int64_t strike = to_nearest_cent(close * (1.0 + 0.01 * percent) * kCentsOfContract);
  return {.strike = strike > 1 ? strike : 1, .put = put, .side = side};
}

TANDEM_HD void single_leg_order(OptionOrder& order, double close, int32_t percent, int32_t put, int32_t days) {
  order.strategy = put ? OptionStrategy::kPut : OptionStrategy::kCall;
  order.days = days;
  order.legs[0] = leg_at(close, percent, put, 1);
}

// `near` percent away and `near` + 5: bought or sold, and the other way.
TANDEM_HD void vertical_order(OptionOrder& order, double close, OptionStrategy strategy, int32_t near, int32_t put,
                              int32_t side) {
  order.strategy = strategy;
  order.legs[0] = leg_at(close, put ? -near : near, put, side);
  order.legs[1] = leg_at(close, put ? -near - 5 : near + 5, put, -side);
}

// Actions 81 to 90: `k` counts them.
TANDEM_HD void combination_order(OptionOrder& order, double close, int32_t k, const OptionsRules& rules) {
  if (k < 5) {  // straddles and strangles
    const int32_t percent = k < 2 ? 0 : 2 * (k - 1);
    order.strategy = k < 2 ? OptionStrategy::kStraddle : OptionStrategy::kStrangle;
    if (k == 1) order.days = rules.second_expiry_days;
    order.legs[0] = leg_at(close, percent, 0, 1);
    order.legs[1] = leg_at(close, -percent, 1, 1);
  } else if (k < 8) {
    const int32_t percent = 2 * (k - 4);
    order.strategy = OptionStrategy::kIronCondor;
    order.legs[0] = leg_at(close, percent, 0, -1);
    order.legs[1] = leg_at(close, percent + 4, 0, 1);
    order.legs[2] = leg_at(close, -percent, 1, -1);
    order.legs[3] = leg_at(close, -percent - 4, 1, 1);
  } else {
    const int32_t wing = 3 * (k - 7);
    order.strategy = OptionStrategy::kButterfly;
    order.legs[0] = leg_at(close, 0, 0, -1);
    order.legs[1] = leg_at(close, 0, 0, -1);
    order.legs[2] = leg_at(close, -wing, 0, 1);
    order.legs[3] = leg_at(close, wing, 0, 1);
  }
}

// What an action that opens a position orders, on the close of the day of the decision. Of other actions: kNone.
TANDEM_HD OptionOrder order_of(int32_t action, double close, const OptionsRules& rules) {
  OptionOrder order;
  order.days = rules.expiry_days;
  if (action >= 1 && action <= 10)
    single_leg_order(order, close, action - 1, 0, rules.expiry_days);
  else if (action >= 11 && action <= 20)
    single_leg_order(order, close, 11 - action, 1, rules.expiry_days);
  else if (!rules.multi_leg || action < kSingleLegActions || action >= kMultiLegActions)
    return order;
  else if (action <= 45)
    single_leg_order(order, close, action - 31, 0, rules.second_expiry_days);
  else if (action <= 60)
    single_leg_order(order, close, 46 - action, 1, rules.second_expiry_days);
  else if (action <= 65)
    vertical_order(order, close, OptionStrategy::kBullCallSpread, action - 61, 0, 1);
  else if (action <= 70)
    vertical_order(order, close, OptionStrategy::kBearPutSpread, action - 66, 1, 1);
  else if (action <= 75)
    vertical_order(order, close, OptionStrategy::kBullPutSpread, action - 70, 1, -1);
  else if (action <= 80)
    vertical_order(order, close, OptionStrategy::kBearCallSpread, action - 75, 0, -1);
  else
    combination_order(order, close, action - 81, rules);
  return order;
}

// ---- quotes ----

// What is known of a chain at a close, until the next one.
struct OptionChain {
  double volatility, skew, spread;
};
TANDEM_HD OptionChain chain_of(const MarketDay& day, const OptionsRules& rules) {
  return {day.volatility, day.skew, day.spread > 0 ? day.spread : rules.spread};
}

TANDEM_HD double strike_of(const OptionLeg& leg) { return static_cast<double>(leg.strike) / kCentsOfContract; }
TANDEM_HD double years_of(int32_t days) { return static_cast<double>(days) / kTradingDaysOfYear; }

TANDEM_HD OptionType type_of(const OptionLeg& leg) { return leg.put ? OptionType::kPut : OptionType::kCall; }

TANDEM_HD double volatility_at(const OptionChain& chain, double spot, double strike, double years) {
  const double volatility = smile_volatility(chain.volatility, chain.skew, spot, strike, years);
  return volatility > kVolatilityFloor ? volatility : kVolatilityFloor;
}

struct OptionQuote {
  double mid;   // a share
  double half;  // of the spread, as a share of the mid
};
// `days` to expiry, 1 or more.
TANDEM_HD OptionQuote quote_of(const OptionLeg& leg, const OptionChain& chain, double spot, int32_t days,
                               const OptionsRules& rules) {
  const double strike = strike_of(leg), years = years_of(days), volatility = volatility_at(chain, spot, strike, years);
  const double log_strike = exact_log(strike / spot);
  const double away = (log_strike < 0 ? -log_strike : log_strike) / rules.far;
  return {option_price(type_of(leg), spot, strike, years, volatility, rules.rate),
          0.5 * (chain.spread + rules.spread_far * (away < 1 ? away : 1))};
}
TANDEM_HD int64_t mark_of(double mid) { return to_nearest_cent(mid * kCentsOfContract); }

// Cents a share that one leg trades at: paid if `bought`, received otherwise. Slippage 0: the ask or the bid.
TANDEM_HD int64_t fill_of(const OptionQuote& quote, bool bought, double slippage) {
  if (!bought) return quote.half < 1 ? static_cast<int64_t>(quote.mid * (1 - quote.half) * (1 - slippage) * 100) : 0;
  const int64_t cents = up_to_cent(quote.mid * (1 + quote.half) * (1 + slippage) * 100);
  return cents > 1 ? cents : 1;
}
TANDEM_HD double slippage_of(int64_t contracts, const OptionsRules& rules) {
  return rules.slippage * (1 + static_cast<double>(contracts) / rules.slippage_contracts);
}

struct OptionFill {
  int64_t paid = 0;  // cents a contract, for all legs; negative: received
  int64_t cost = 0;  // of it, what the spread, slippage and rounding took
  int32_t legs = 0;
};
// All legs of a position: opened (direction 1) or closed (-1). Out of line: threads of a warp that size, open and close
// share its code.
TANDEM_HD_NOINLINE OptionFill fill_legs(const OptionLeg* legs, int32_t direction, const OptionChain& chain, double spot,
                                        int32_t days, double slippage, const OptionsRules& rules) {
  OptionFill fill;
  for (int i = 0; i < kOptionLegs; ++i) {
    const int32_t side = direction * legs[i].side;
    if (side == 0) break;
    const OptionQuote quote = quote_of(legs[i], chain, spot, days, rules);
    const int64_t paid = side * fill_of(quote, side > 0, slippage) * kSharesOfContract;
    fill.paid += paid;
    fill.cost += paid - side * mark_of(quote.mid);
    ++fill.legs;
  }
  return fill;
}

// ---- at expiry ----

// What a contract of all legs pays when the 100 shares are worth `spot` cents: long legs are exercised where that pays,
// short ones are assigned.
TANDEM_HD int64_t payoff_of(const OptionLeg* legs, int64_t spot) {
  int64_t sum = 0;
  for (int i = 0; i < kOptionLegs && legs[i].side != 0; ++i) {
    const int64_t gain = legs[i].put ? legs[i].strike - spot : spot - legs[i].strike;
    if (gain > 0) sum += legs[i].side * gain;
  }
  return sum;
}

// The most that a contract can owe at expiry. The payoff is linear between strikes and does not fall above the highest,
// so that the worst is at 0 or at a strike.
TANDEM_HD int64_t reserve_of(const OptionLeg* legs) {
  if (legs[1].side == 0) return 0;  // single legs are bought
  int64_t least = payoff_of(legs, 0);
  for (int i = 0; i < kOptionLegs && legs[i].side != 0; ++i) {
    const int64_t there = payoff_of(legs, legs[i].strike);
    if (there < least) least = there;
  }
  return least < 0 ? -least : 0;
}

}  // namespace tandem
