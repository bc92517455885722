// What options of a generated market pay at expiry, beside the middle of bid and ask at which they are filled.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "market/features.h"
#include "market/generated_market.h"
#include "market/options_orders.h"

namespace tandem {
namespace {

constexpr int32_t kBuyCall = 1, kBuyFarCall = 6, kBuyPut = 11, kBuyFarPut = 16, kSellPuts = 71, kSellCalls = 76,
                  kStraddle = 81, kCondor = 86;  // options_rules.h

// Of the premium at the close of the decision, over all decisions; the error is that of symbols, which know nothing of
// each other.
struct MeanGain {
  double before_costs = 0, error = 0, costs = 0;
  int64_t free_of_charge = 0;  // orders without costs
};

MeanGain mean_gain(const GeneratedMarket& market, int32_t action, double rate, double calmer_than = 9) {
  OptionsRules rules;
  rules.rate = rate;
  rules.multi_leg = 1;
  double sum = 0, square = 0, symbols = 0, costs = 0, orders = 0;
  MeanGain out;
  for (size_t s = 0; s < market.data.symbols.size(); ++s) {
    const std::vector<MarketDay> days = market_days(market.data.symbols[s], 0, {});
    double gained = 0, count = 0;
    for (size_t t = 0; t + static_cast<size_t>(rules.expiry_days) < days.size(); t += 5) {
      if (days[t].volatility > calmer_than) continue;
      const OptionOrder order = order_of(action, days[t].close, rules);
      const OptionFill fill = fill_legs(order.legs, 1, chain_of(days[t], rules), days[t + 1].open, order.days,
                                        slippage_of(1, rules), rules);
      const auto middle = static_cast<double>(fill.paid - fill.cost);
      const OptionFill decided =
          fill_legs(order.legs, 1, chain_of(days[t], rules), days[t].close, order.days, 0, rules);
      const double premium = std::fabs(static_cast<double>(decided.paid - decided.cost));
      const MarketDay& last = days[t + static_cast<size_t>(order.days)];
      const auto payoff = static_cast<double>(payoff_of(order.legs, to_nearest_cent(last.close * kCentsOfContract)));
      gained += (payoff - middle) / premium, count += 1;
      costs += static_cast<double>(fill.cost + rules.commission_cents * fill.legs) / premium, orders += 1;
      out.free_of_charge += fill.cost <= 0;
    }
    if (count == 0) continue;
    sum += gained / count, square += gained / count * (gained / count), symbols += 1;
  }
  out.before_costs = sum / symbols;
  out.error = std::sqrt((square / symbols - out.before_costs * out.before_costs) / symbols);
  out.costs = costs / orders;
  return out;
}

// `make test TESTS=OptionFairness ARGS=-V` shows them.
MeanGain shown(const char* what, const MeanGain& gain) {
  std::printf("%-44s %+6.1f %% of the premium +- %.1f, costs %.1f %%\n", what, 100 * gain.before_costs,
              100 * gain.error, 100 * gain.costs);
  return gain;
}

TEST(OptionFairness, OnAFairMarketEveryOptionPaysItsMiddleOnAverageAndCostsAreLost) {
  const GeneratedMarket market = generate_market({.symbols = 500, .days = 800, .seed = 31, .fair = true});
  const std::pair<const char*, int32_t> bets[] = {
      {"fair: a bought call", kBuyCall},      {"fair: a bought call 5 % above", kBuyFarCall},
      {"fair: a bought put", kBuyPut},        {"fair: a sold call spread", kSellCalls},
      {"fair: a sold put spread", kSellPuts}, {"fair: a straddle", kStraddle},
      {"fair: an iron condor", kCondor}};
  for (const auto& [name, action] : bets) {
    const MeanGain gain = shown(name, mean_gain(market, action, 0));
    EXPECT_LT(std::fabs(gain.before_costs), 3.5 * gain.error) << name;
    EXPECT_LT(gain.error, action == kBuyFarCall ? .06 : .02) << name << ": enough of them to see a premium";
    EXPECT_EQ(gain.free_of_charge, 0) << name;
  }
}

TEST(OptionFairness, OnTheUsualMarketSellersOfCallsAndCalmBuyersOfPutsEarn) {
  const GeneratedMarket market = generate_market({.symbols = 500, .days = 800, .seed = 31});
  const MeanGain bought = shown("usual: a bought call", mean_gain(market, kBuyCall, .03));
  const MeanGain sold = shown("usual: a sold call spread", mean_gain(market, kSellCalls, .03));
  const MeanGain straddle = shown("usual: a straddle", mean_gain(market, kStraddle, .03));
  shown("usual: a bought put", mean_gain(market, kBuyPut, .03));
  const MeanGain calm = shown("usual: a bought put, implied below 15 %", mean_gain(market, kBuyPut, .03, .15));
  shown("usual: a sold put spread", mean_gain(market, kSellPuts, .03));
  shown("usual: an iron condor", mean_gain(market, kCondor, .03));
  EXPECT_LT(bought.before_costs, -4 * bought.error);
  EXPECT_GT(sold.before_costs - sold.costs, 0) << "more than its costs";
  EXPECT_LT(straddle.before_costs, -4 * straddle.error);
  EXPECT_GT(calm.before_costs - calm.costs, 0) << "more than its costs";
}

}  // namespace
}  // namespace tandem
