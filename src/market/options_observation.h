// market/options_observation.h -- what the agent sees of its own portfolio: 52 numbers of order 1, within +-10.
//
//   0-4    cash, value (1: the capital), drawdown from the peak, share of the slots used, share of the episode gone
//   5-44   of each slot 8 (zeros where it is free): strategy (kStrategyCode), 10 ln(K / S) of the first leg, 20 entry /
//   S,
//          20 mark / S, contracts / max_contracts, days left / expiry_days, profit in orders, delta a share
//   45-49  of the portfolio, in shares of the capital: delta (value of the shares it equals), gamma (5 x change of that
//          by a spot 1 % higher), and what is gained in percent by a volatility .01 higher (vega), 5 x that by a day
//          (theta), 5 x that by a rate .01 higher (rho)
//   50     the last order: 1 filled, -1 rejected, 0 none       51  10 x what it traded, as a share of the capital
#pragma once

#include "market/options_step.h"

namespace tandem {

namespace options {

// The direction of the market that a strategy bets on has the sign.
TANDEM_HD float strategy_code(OptionStrategy strategy) {
  switch (strategy) {
    case OptionStrategy::kCall:
      return 1.0f;
    case OptionStrategy::kPut:
      return -1.0f;
    case OptionStrategy::kBullCallSpread:
      return 0.8f;
    case OptionStrategy::kBearPutSpread:
      return -0.8f;
    case OptionStrategy::kBullPutSpread:
      return 0.6f;
    case OptionStrategy::kBearCallSpread:
      return -0.6f;
    case OptionStrategy::kStraddle:
      return 0.4f;
    case OptionStrategy::kStrangle:
      return 0.3f;
    case OptionStrategy::kIronCondor:
      return -0.3f;
    case OptionStrategy::kButterfly:
      return -0.4f;
    default:
      return 0.0f;
  }
}

TANDEM_HD float held(double x) { return static_cast<float>(x > 10 ? 10.0 : x < -10 ? -10.0 : x); }

// Price and Greeks of a share of all legs.
TANDEM_HD OptionValue value_of_legs(const OptionLeg* legs, const OptionChain& chain, double spot, int32_t days,
                                    const OptionsRules& rules) {
  OptionValue sum;
  const double years = years_of(days);
  for (int i = 0; i < kOptionLegs && legs[i].side != 0; ++i) {
    const double strike = strike_of(legs[i]), side = legs[i].side;
    const OptionValue one =
        option_value(type_of(legs[i]), spot, strike, years, volatility_at(chain, spot, strike, years), rules.rate);
    sum.price += side * one.price;
    sum.delta += side * one.delta;
    sum.gamma += side * one.gamma;
    sum.vega += side * one.vega;
    sum.theta += side * one.theta;
    sum.rho += side * one.rho;
  }
  return sum;
}

// The 8 numbers of a slot that is used; its Greeks times its shares are added to `all`.
TANDEM_HD void observe_position(const OptionPosition& position, const OptionChain& chain, double spot, int32_t day,
                                const OptionsRules& rules, float* out, OptionValue& all) {
  const int32_t days = position.expiry - day;
  const OptionValue one = value_of_legs(position.legs, chain, spot, days, rules);
  const double shares = static_cast<double>(position.contracts) * kSharesOfContract;
  const double profit = static_cast<double>((position.mark - position.entry) * position.contracts);
  const double per_spot = 20.0 / (spot * kCentsOfContract);
  out[0] = strategy_code(position.strategy);
  out[1] = held(10.0 * exact_log(strike_of(position.legs[0]) / spot));
  out[2] = held(per_spot * static_cast<double>(position.entry));
  out[3] = held(per_spot * static_cast<double>(position.mark));
  out[4] = static_cast<float>(static_cast<double>(position.contracts) / rules.max_contracts);
  out[5] = static_cast<float>(static_cast<double>(days) / rules.expiry_days);
  out[6] = held(profit / (rules.order_share * static_cast<double>(rules.capital_cents)));
  out[7] = held(one.delta);
  all.delta += shares * one.delta;
  all.gamma += shares * one.gamma;
  all.vega += shares * one.vega;
  all.theta += shares * one.theta;
  all.rho += shares * one.rho;
}

}  // namespace options

// A portfolio of cash alone, before its first step.
TANDEM_HD void observe_flat(float* out) {
  for (int i = 0; i < kOwnFeatures; ++i) out[i] = i < 2 ? 1.0f : 0.0f;
}

TANDEM_HD void observe_options(const OptionsState& state, const MarketView& market, const OptionsRules& rules,
                               float* out) {
  constexpr int kOfPosition = 8, kPositionsAt = 5, kGreeksAt = kPositionsAt + kOfPosition * kOptionPositions;
  static_assert(kGreeksAt + 7 == kOwnFeatures);
  const MarketDay& today = market.days[state.day];
  const OptionChain chain = chain_of(today, rules);
  OptionValue all;
  int used = 0;
  for (int slot = 0; slot < kOptionPositions; ++slot) {
    float* const at = out + kPositionsAt + slot * kOfPosition;
    if (state.positions[slot].contracts == 0) {
      for (int i = 0; i < kOfPosition; ++i) at[i] = 0.0f;
      continue;
    }
    options::observe_position(state.positions[slot], chain, today.close, state.day, rules, at, all);
    ++used;
  }
  const auto capital = static_cast<double>(rules.capital_cents);
  out[0] = options::held(static_cast<double>(state.cash) / capital);
  out[1] = options::held(static_cast<double>(state.value) / capital);
  out[2] = static_cast<float>(1.0 - static_cast<double>(state.value) / static_cast<double>(state.peak));
  out[3] = static_cast<float>(static_cast<double>(used) / rules.positions);
  out[4] = static_cast<float>(static_cast<double>(state.steps) / state.length);
  const double share = 100.0 / capital;  // of the capital, for an amount in the currency's units
  const double spot = today.close;
  out[kGreeksAt] = options::held(all.delta * spot * share);
  out[kGreeksAt + 1] = options::held(5.0 * all.gamma * spot * spot * 0.01 * share);
  out[kGreeksAt + 2] = options::held(all.vega * share);
  out[kGreeksAt + 3] = options::held(500.0 * all.theta / kTradingDaysOfYear * share);
  out[kGreeksAt + 4] = options::held(5.0 * all.rho * share);
  out[kGreeksAt + 5] = static_cast<float>(state.last_order);
  out[kGreeksAt + 6] = options::held(10.0 * static_cast<double>(state.last_traded) / capital);
}

}  // namespace tandem
