// Exercise and assignment at expiry, of every kind of leg and every strategy; what is reserved for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

// What legs pay a share at a spot, from the definition of calls and puts.
double payoff_by_definition(const OptionLeg* legs, double spot) {
  double sum = 0;
  for (int i = 0; i < kOptionLegs; ++i) {
    const double strike = static_cast<double>(legs[i].strike) / 1e4;
    sum += legs[i].side * (legs[i].put ? std::max(0.0, strike - spot) : std::max(0.0, spot - strike));
  }
  return sum;
}

// Opens by `action` in a still market and holds; the spot is `expiry_spot` at the close of the day of expiry.
struct HeldToExpiry {
  OptionsState opened, before, after;
  std::vector<OptionTrade> trades;
};
HeldToExpiry hold_to_expiry(int32_t action, double expiry_spot) {
  OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment first(market.view(), {.multi_leg = 1});
  const int32_t decided = first.begin(0).day;
  const int32_t days = order_of(action, 100, first.rules()).days;
  market.days[static_cast<size_t>(decided + days)].close = expiry_spot;
  const OptionsEnvironment environment(market.view(), {.multi_leg = 1});
  HeldToExpiry out;
  OptionsState state = environment.begin(0);
  environment.step_one(state, action, &out.trades);
  out.opened = state;
  while (state.day < decided + days - 1) environment.step_one(state, 0, &out.trades);
  out.before = state;
  environment.step_one(state, 0, &out.trades);
  out.after = state;
  return out;
}

// Long calls and puts, in and out of the money.
TEST(OptionsExpiry, LongLegsAreExercisedWhereThatPays) {
  for (const int32_t action : {1, 11, 31, 46})
    for (const double spot : {85.0, 99.99, 100.0, 100.01, 118.25}) {
      const HeldToExpiry held = hold_to_expiry(action, spot);
      const OptionPosition& position = held.before.positions[0];
      ASSERT_GT(position.contracts, 0) << "held until the day of expiry";
      EXPECT_EQ(position.expiry, held.before.day + 1);
      const double gain = action == 1 || action == 31 ? spot - 100 : 100 - spot;
      const int64_t paid_out = std::llround(std::max(0.0, gain) * 1e4) * position.contracts;
      EXPECT_EQ(held.after.cash, held.before.cash + paid_out) << action << " at " << spot;
      EXPECT_EQ(held.after.value, held.after.cash);
      EXPECT_EQ(held.after.positions[0].contracts, 0);
      EXPECT_EQ(held.after.settled, 1);
      EXPECT_EQ(held.after.costs, held.before.costs) << "settlement is free";
    }
}

// All strategies, with the spot below, between and above their strikes: short legs are assigned.
TEST(OptionsExpiry, EveryStrategySettlesToItsPayoff) {
  for (int32_t action = 1; action < kMultiLegActions; ++action) {
    if (action > 20 && action < 31) continue;
    for (const double spot : {70.0, 88.5, 93.0, 97.0, 100.0, 102.5, 106.0, 111.0, 140.0}) {
      const HeldToExpiry held = hold_to_expiry(action, spot);
      const OptionPosition& position = held.before.positions[0];
      ASSERT_GT(position.contracts, 0) << action;
      const auto owed = std::llround(payoff_by_definition(position.legs, spot) * 1e4);
      EXPECT_EQ(held.after.cash - held.before.cash, owed * position.contracts) << action << " at " << spot;
      EXPECT_GE(held.after.cash, 0);
      EXPECT_EQ(held.after.reserved, 0);
      ASSERT_EQ(held.trades.size(), 2u);
      EXPECT_EQ(held.trades[1].kind, OptionTrade::Kind::kSettle);
      EXPECT_EQ(held.trades[1].received, owed);
      EXPECT_EQ(held.trades[1].days_left, 0);
    }
  }
}

TEST(OptionsExpiry, TheReserveIsTheLargestThatAPositionCanOwe) {
  const OptionsRules rules{.multi_leg = 1};
  int with_reserve = 0;
  for (int32_t action = 1; action < kMultiLegActions; ++action) {
    const OptionOrder order = order_of(action, 137.31, rules);
    if (order.strategy == OptionStrategy::kNone) continue;
    double least = 0;
    for (int cent = 0; cent < 40'000; cent += 5) least = std::min(least, payoff_by_definition(order.legs, cent * 0.01));
    const auto reserve = static_cast<double>(reserve_of(order.legs)) / 1e4;
    EXPECT_NEAR(reserve, -least, 0.05) << "action " << action;
    EXPECT_GE(reserve, -least - 1e-9) << "action " << action;
    with_reserve += reserve > 0;
  }
  EXPECT_EQ(with_reserve, 13);  // two kinds of credit spreads, five each, and three condors
}

// A credit is not cash to spend while the position can still owe more.
TEST(OptionsExpiry, AnOrderThatWouldTouchTheReserveIsRejected) {
  const OptionsTestMarket market = flat_options_market(100, 1000);
  // A width of 5 % of 1,000 needs 5,000 a contract: two contracts at most.
  const OptionsEnvironment environment(market.view(), {.capital_cents = 1'000'000, .multi_leg = 1});
  OptionsState state = environment.begin(0);
  for (int i = 0; i < 3; ++i) environment.step_one(state, 71);
  EXPECT_EQ(state.fills, 2);
  EXPECT_EQ(state.rejected, 1);
  EXPECT_EQ(state.reserved, 2 * 500'000);
  EXPECT_GE(state.cash, state.reserved);
}

TEST(OptionsExpiry, WhatAStrategyIsMadeOf) {
  const OptionsRules rules{.multi_leg = 1};
  const auto text = [&](int32_t action) { return legs_text(order_of(action, 100, rules).legs); };
  EXPECT_EQ(text(1), "+call 100.00");
  EXPECT_EQ(text(10), "+call 109.00");
  EXPECT_EQ(text(11), "+put 100.00");
  EXPECT_EQ(text(20), "+put 91.00");
  EXPECT_EQ(text(45), "+call 114.00");
  EXPECT_EQ(text(60), "+put 86.00");
  EXPECT_EQ(text(65), "+call 104.00 -call 109.00");
  EXPECT_EQ(text(70), "+put 96.00 -put 91.00");
  EXPECT_EQ(text(71), "-put 99.00 +put 94.00");
  EXPECT_EQ(text(80), "-call 105.00 +call 110.00");
  EXPECT_EQ(text(81), "+call 100.00 +put 100.00");
  EXPECT_EQ(text(85), "+call 106.00 +put 94.00");
  EXPECT_EQ(text(86), "-call 102.00 +call 106.00 -put 98.00 +put 94.00");
  EXPECT_EQ(text(90), "-call 100.00 -call 100.00 +call 94.00 +call 106.00");
  EXPECT_EQ(order_of(31, 100, rules).days, 42);
  EXPECT_EQ(order_of(82, 100, rules).days, 42);
  EXPECT_EQ(order_of(81, 100, rules).days, 21);
  for (const int32_t none : {0, 21, 30}) EXPECT_EQ(order_of(none, 100, rules).strategy, OptionStrategy::kNone);
  EXPECT_EQ(order_of(31, 100, {}).strategy, OptionStrategy::kNone) << "without multi_leg";
}

}  // namespace
}  // namespace tandem
