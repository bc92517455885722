// The options environment as a learner sees it: starts, ends, impossible actions, observations, bad input.
#include "market/options_environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "base/errors.h"
#include "market/options_play.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

std::byte* bytes_of(std::vector<OptionsState>& states) { return reinterpret_cast<std::byte*>(states.data()); }

bool same_bytes(const OptionsState& a, const OptionsState& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(OptionsEnvironment, RandomStartsCoverEveryDayOfEveryRange) {
  const OptionsTestMarket market = random_options_market(3, 80, 1);
  const OptionsEnvironment environment(market.view(), {});
  std::vector<OptionsState> states(60'000);
  environment.reset(bytes_of(states), 60'000, {9, 0, 2, 4}, nullptr);
  std::map<int32_t, int> begun, by_range;
  for (const OptionsState& state : states) {
    ++begun[state.day];
    ++by_range[state.range];
    EXPECT_GE(state.day, market.ranges[static_cast<size_t>(state.range)].first);
    EXPECT_LT(state.day, market.ranges[static_cast<size_t>(state.range)].last);
    EXPECT_EQ(state.last, market.ranges[static_cast<size_t>(state.range)].last);
  }
  int days = 0;
  for (const auto& [first, last] : market.ranges) days += last - first;
  EXPECT_EQ(static_cast<int>(begun.size()), days) << "each day but a range's last";
  for (const auto& [range, count] : by_range) EXPECT_NEAR(count, 10'000, 500) << "range " << range;
}

TEST(OptionsEnvironment, TheNumberOfEnvironmentsIsNoPartOfAResult) {
  const OptionsTestMarket market = random_options_market(3, 200, 1);
  const OptionsEnvironment environment(market.view(), {.episode = 15, .multi_leg = 1});
  std::vector<OptionsState> many(50), few(7);
  std::vector<Outcome> results(50), few_results(7);
  environment.reset(bytes_of(many), 50, {3, 0, 0, 0}, nullptr);
  environment.reset(bytes_of(few), 7, {3, 0, 0, 0}, nullptr);
  for (uint64_t step = 1; step < 40; ++step) {
    std::vector<int32_t> actions(50);
    for (size_t i = 0; i < 50; ++i) actions[i] = static_cast<int32_t>(random_below({4, step, 0, 0}, i, 91));
    environment.step(bytes_of(many), actions.data(), results.data(), 50, {3, step, 0, 1});
    environment.step(bytes_of(few), actions.data(), few_results.data(), 7, {3, step, 0, 1});
    environment.reset(bytes_of(many), 50, {3, step, 0, 0}, results.data());
    environment.reset(bytes_of(few), 7, {3, step, 0, 0}, few_results.data());
    for (size_t i = 0; i < 7; ++i) {
      ASSERT_TRUE(same_bytes(many[i], few[i])) << step;
      ASSERT_EQ(results[i].reward, few_results[i].reward);
    }
  }
}

TEST(OptionsEnvironment, AnEpisodeIsTruncatedAtItsLengthAndAtTheRangesLastDay) {
  const OptionsTestMarket market = flat_options_market(300);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0, 30, 195);
  for (int i = 1; i < 195; ++i) ASSERT_EQ(environment.step_one(state, 0).end, End::kNone);
  EXPECT_EQ(environment.step_one(state, 0).end, End::kTruncated);
  EXPECT_EQ(state.day, 225);
  OptionsState late = environment.begin(0, 290, 195);
  for (int i = 1; i < 9; ++i) ASSERT_EQ(environment.step_one(late, 0).end, End::kNone);
  EXPECT_EQ(environment.step_one(late, 0).end, End::kTruncated);
  EXPECT_EQ(late.day, 299);
  OptionsState whole = environment.begin(0);
  int steps = 1;
  while (environment.step_one(whole, 0).end == End::kNone) ++steps;
  EXPECT_EQ(steps, 280) << "an evaluation plays all days";
  EXPECT_EQ(OptionsEnvironment::equity_cents(whole), 10'000'000);
}

// Calls that expire worthless, with all the capital in them.
TEST(OptionsEnvironment, RuinTerminatesEvenOnTheLastDay) {
  OptionsTestMarket market = flat_options_market(300);
  const OptionsEnvironment environment(market.view(), {.order_share = 0.95, .slippage = 0, .max_contracts = 100'000});
  OptionsState state = environment.begin(0);
  environment.step_one(state, 1);
  ASSERT_GT(state.positions[0].contracts, 100);
  Outcome outcome;
  while ((outcome = environment.step_one(state, 0)).end == End::kNone) {
  }
  EXPECT_EQ(outcome.end, End::kTerminated);
  EXPECT_LT(state.value, 1'000'000);
  const int32_t days = state.steps;
  OptionsState cut = environment.begin(0, environment.begin(0).day, days);
  environment.step_one(cut, 1);
  while ((outcome = environment.step_one(cut, 0)).end == End::kNone) {
  }
  EXPECT_EQ(cut.steps, days);
  EXPECT_EQ(outcome.end, End::kTerminated) << "ruin goes before the limit";
}

TEST(OptionsEnvironment, AfterItsEndAnEpisodeStandsStill) {
  const OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0, 25, 2);
  environment.step_one(state, 1);
  ASSERT_EQ(environment.step_one(state, 0).end, End::kTruncated);
  const OptionsState before = state;
  const Outcome idle = environment.step_one(state, 11);
  EXPECT_EQ(idle.end, End::kTruncated);
  EXPECT_EQ(idle.reward, 0.0f);
  EXPECT_TRUE(same_bytes(state, before));
}

// Of two portfolios that wait a day, one orders what can't be: they differ in nothing but the counters.
void expect_free_of_cost(const OptionsEnvironment& environment, const OptionsState& from, int32_t action) {
  OptionsState waits = from, orders = from;
  const Outcome waited = environment.step_one(waits, 0), ordered = environment.step_one(orders, action);
  EXPECT_EQ(ordered.reward, waited.reward);
  EXPECT_EQ(ordered.terms[0], 0.0f);
  EXPECT_EQ(orders.last_order, -1) << "action " << action;
  EXPECT_EQ(orders.rejected, waits.rejected + 1);
  orders.orders = waits.orders;
  orders.rejected = waits.rejected;
  orders.last_order = 0;
  EXPECT_TRUE(same_bytes(orders, waits)) << "action " << action;
}

TEST(OptionsEnvironment, ImpossibleActionsDoNothingAndCostNothing) {
  const OptionsTestMarket market = random_options_market(1, 200, 8);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0);
  for (int32_t action = 21; action <= 30; ++action) expect_free_of_cost(environment, state, action);  // no position
  for (int i = 0; i < 5; ++i) environment.step_one(state, 1 + i);
  ASSERT_EQ(state.fills, 5);
  for (const int32_t action : {1, 20}) expect_free_of_cost(environment, state, action);  // no free slot
  environment.step_one(state, 23);
  expect_free_of_cost(environment, state, 23);
  expect_free_of_cost(environment, state, 28);
  const OptionsEnvironment poor(market.view(), {.capital_cents = 100});
  expect_free_of_cost(poor, poor.begin(0), 1);  // no cash
  const OptionsEnvironment three(market.view(), {.positions = 3});
  OptionsState held = three.begin(0);
  for (int i = 0; i < 3; ++i) three.step_one(held, 1);
  expect_free_of_cost(three, held, 1);
}

TEST(OptionsEnvironment, AFreedSlotIsTheNextOnesAndPositionsKeepTheirNumbers) {
  const OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0);
  for (const int32_t action : {1, 3, 12}) environment.step_one(state, action);
  environment.step_one(state, 22);
  EXPECT_EQ(state.positions[0].legs[0].strike, 1'000'000);
  EXPECT_EQ(state.positions[1].contracts, 0);
  EXPECT_EQ(state.positions[2].legs[0].strike, 990'000);
  environment.step_one(state, 5);
  EXPECT_EQ(state.positions[1].legs[0].strike, 1'040'000);
}

TEST(OptionsEnvironment, BeforeAnEpisodeThePortfolioIsFlat) {
  const OptionsTestMarket market = random_options_market(2, 100, 2);
  const OptionsEnvironment environment(market.view(), {});
  std::vector<OptionsState> states(3);
  environment.reset(bytes_of(states), 3, {1, 0, 0, 0}, nullptr);
  std::vector<float> seen(3 * kOwnFeatures), before(kOwnFeatures);
  std::vector<int32_t> rows(3);
  environment.observe(bytes_of(states), seen.data(), 3);
  environment.observe_before(before.data());
  environment.table_rows(bytes_of(states), rows.data(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::equal(before.begin(), before.end(), seen.begin() + static_cast<int64_t>(i) * kOwnFeatures));
    EXPECT_EQ(rows[i], states[i].day);
  }
  EXPECT_EQ(environment.table().rows, market.features.data());
  EXPECT_EQ(environment.table().count, 200);
  EXPECT_EQ(environment.table().width, 108);
}

TEST(OptionsEnvironment, AnObservationShowsThePortfolioAndItsGreeks) {
  const OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0, 30, 50);
  environment.step_one(state, 3);
  std::vector<float> seen(kOwnFeatures);
  environment.observe(reinterpret_cast<const std::byte*>(&state), seen.data(), 1);
  const OptionPosition& held = state.positions[0];
  const OptionValue value = option_value(OptionType::kCall, 100, 102, 20 / 252.0, 0.2, 0.03);
  const double shares = 100.0 * held.contracts;
  const std::vector<std::pair<int, double>> expected = {
      {0, static_cast<double>(state.cash) / 1e7},
      {1, static_cast<double>(state.value) / 1e7},
      {2, 1 - static_cast<double>(state.value) / 1e7},
      {3, 0.2},
      {4, 1.0 / 50},
      {5, 1},
      {6, 10 * std::log(1.02)},
      {7, 20 * static_cast<double>(held.entry) / 1e6},
      {8, 20 * value.price / 100},
      {9, held.contracts / 100.0},
      {10, 20.0 / 21},
      {11, static_cast<double>((held.mark - held.entry) * held.contracts) / 5e5},
      {12, value.delta},
      {13, 0},
      {45, value.delta * shares * 100 / 1e5},
      {46, 5 * value.gamma * shares * 100 / 1e5},
      {47, value.vega * 0.01 * shares / 1e5 * 100},
      {48, 5 * value.theta / 252 * shares / 1e5 * 100},
      {49, 5 * value.rho * 0.01 * shares / 1e5 * 100},
      {50, 1},
      {51, 10 * static_cast<double>(held.entry * held.contracts) / 1e7}};
  for (const auto& [at, number] : expected) EXPECT_NEAR(seen[static_cast<size_t>(at)], number, 1e-4) << at;
}

TEST(OptionsEnvironment, ObservationsStayOfOrderOneUnderRandomPlay) {
  const OptionsTestMarket market = random_options_market(3, 300, 6, 0.05);
  const OptionsEnvironment environment(market.view(), {.order_share = 0.3, .multi_leg = 1});
  std::vector<OptionsState> states(64);
  std::vector<Outcome> results(64);
  std::vector<int32_t> actions(64);
  std::vector<float> seen(64 * kOwnFeatures);
  environment.reset(bytes_of(states), 64, {1, 0, 0, 0}, nullptr);
  for (uint64_t step = 1; step < 300; ++step) {
    for (size_t i = 0; i < 64; ++i) actions[i] = static_cast<int32_t>(random_below({1, step, 0, 1}, i, 91));
    environment.step(bytes_of(states), actions.data(), results.data(), 64, {});
    environment.observe(bytes_of(states), seen.data(), 64);
    for (const float x : seen) ASSERT_TRUE(std::isfinite(x) && std::abs(x) <= 10.0f) << x;
    environment.reset(bytes_of(states), 64, {1, step, 0, 0}, results.data());
  }
}

TEST(OptionsEnvironment, TradesAreWrittenAsCsv) {
  const OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment environment(market.view(), {.multi_leg = 1});
  OptionsState state = environment.begin(0);
  std::vector<OptionTrade> trades;
  environment.step_one(state, 61, &trades);
  environment.step_one(state, 21, &trades);
  ASSERT_EQ(trades.size(), 2u);
  const std::string line = trade_line(trades[0], "AAPL");
  EXPECT_EQ(line.rfind("20200020,AAPL,open,61,1,bull_call_spread,+call 100.00 -call 105.00,20,", 0), 0u) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), ','), 11);
  const std::string header = trade_header();
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), 11);
  EXPECT_LT(trades[0].received, 0);
  EXPECT_GT(trades[1].received, 0);
}

// ---- bad input ----

TEST(OptionsEnvironment, RefusesRulesThatAreOutOfRange) {
  const OptionsTestMarket market = flat_options_market(100);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<OptionsRules> bad = {
      {.capital_cents = 0}, {.order_share = 0}, {.order_share = 1.5}, {.spread = -0.01},
      {.spread = nan},      {.far = 0},         {.slippage = 0.5},    {.slippage_contracts = 0},
      {.rate = 3},          {.ruin = 1},        {.positions = 6},     {.positions = 0},
      {.max_contracts = 0}, {.expiry_days = 0}, {.episode = 0},       {.commission_cents = -1}};
  for (size_t i = 0; i < bad.size(); ++i)
    EXPECT_THROW(OptionsEnvironment(market.view(), bad[i]), ConfigError) << "rule " << i;
  try {
    check_options_rules({.order_share = 1.5});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.render().find("order_share = 1.5"), std::string::npos) << error.render();
    EXPECT_NE(error.render().find("from 1e-06 to 1"), std::string::npos) << error.render();
  }
}

TEST(OptionsEnvironment, RefusesMarketsThatCantBeTradedOn) {
  const auto refused = [](const std::function<void(OptionsTestMarket&)>& change) {
    OptionsTestMarket market = random_options_market(2, 60, 1);
    change(market);
    EXPECT_THROW(OptionsEnvironment(market.view(), {}), ConfigError);
  };
  refused([](auto& m) { m.ranges.clear(); });
  refused([](auto& m) { m.ranges[0].last = m.ranges[0].first; });
  refused([](auto& m) { m.ranges[0].first = kWindow - 2; });
  refused([](auto& m) { m.ranges[3].last = 120; });
  refused([](auto& m) { m.ranges[1].last = 61; });        // reaches into the next symbol
  refused([](auto& m) { m.ranges[2].first = 60 + 18; });  // its window does
  refused([](auto& m) { m.days[40].close = 0; });
  refused([](auto& m) { m.days[41].open = std::nan(""); });
  refused([](auto& m) { m.days[42].volatility = -0.1; });
  refused([](auto& m) { m.days[43].skew = INFINITY; });
}

TEST(OptionsEnvironment, RefusesActionsAndDaysThatAreNone) {
  const OptionsTestMarket market = flat_options_market(100);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0);
  const OptionsState before = state;
  for (const int32_t action : {-1, 31, 90}) EXPECT_THROW(environment.step_one(state, action), std::out_of_range);
  EXPECT_TRUE(same_bytes(state, before));
  EXPECT_THROW(environment.begin(1), std::out_of_range);
  EXPECT_THROW(environment.begin(0, 18, 5), std::out_of_range);
  EXPECT_THROW(environment.begin(0, 99, 5), std::out_of_range);
  EXPECT_THROW(environment.begin(0, 30, 0), std::out_of_range);
}

TEST(OptionsEnvironment, RulesOfActionsSayWhatIsPossible) {
  const OptionsTestMarket market = random_options_market(1, 120, 4);
  const OptionsEnvironment environment(market.view(), {});
  const std::vector<ActionRule> rules = environment.action_rules();
  ASSERT_EQ(static_cast<int64_t>(rules.size()), environment.actions());
  OptionsState state = environment.begin(0);
  std::vector<float> seen(kOwnFeatures);
  int64_t rejected = 0, tried = 0;
  for (int32_t action = 0; state.end == 0; action = (action * 7 + 3) % 31) {
    environment.observe(reinterpret_cast<const std::byte*>(&state), seen.data(), 1);
    const bool possible = is_possible(rules[static_cast<size_t>(action)], seen.data());
    const int before = state.fills;
    environment.step_one(state, action);
    EXPECT_TRUE(possible || state.fills == before) << "action " << action;
    rejected += !possible;
    tried += possible && action > 0 && state.fills == before;
  }
  EXPECT_GT(rejected, 5);
  EXPECT_EQ(tried, 0) << "with much cash, what the rules allow is filled";
}

TEST(OptionsEnvironment, WhatIsOpenAtTheEndOfAPlayIsWorthWhatItsSaleBrings) {
  const OptionsTestMarket market = flat_options_market(60);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0);
  EXPECT_EQ(environment.liquidation_cents(state), state.value) << "cash alone";
  environment.step_one(state, 1);
  OptionsState sold = state;
  environment.step_one(sold, 21);  // at the next open: the same price and volatility, a day less is left at its close
  EXPECT_LT(environment.liquidation_cents(state), state.value);
  EXPECT_EQ(environment.liquidation_cents(state), sold.cash);
  const SymbolPlay play =
      play_range(environment, 0, "A", [](const OptionsState& s) { return s.steps % 9 == 0 ? 1 : 0; });
  OptionsState last = environment.begin(0);
  while (last.end == 0) environment.step_one(last, last.steps % 9 == 0 ? 1 : 0);
  EXPECT_GT(last.positions[0].contracts, 0);
  EXPECT_EQ(play.equity_cents.back(), environment.liquidation_cents(last));
}

}  // namespace
}  // namespace tandem
