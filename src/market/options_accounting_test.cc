// Every cent of a portfolio of options, followed through random play.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

int legs_held(const OptionLeg* legs) {
  int count = 0;
  while (count < kOptionLegs && legs[count].side != 0) ++count;
  return count;
}

// The rules of money, counted again from the list of trades.
class OptionsLedger {
 public:
  OptionsLedger(const OptionsEnvironment& environment, int64_t cash) : environment_(environment), cash_(cash) {}

  void book(const std::vector<OptionTrade>& trades) {
    for (const OptionTrade& t : trades) {
      const int64_t commission = t.kind == OptionTrade::Kind::kSettle
                                     ? 0
                                     : int64_t{environment_.rules().commission_cents} * legs_held(t.legs) * t.contracts;
      ASSERT_EQ(t.commission, commission);
      ASSERT_GT(t.contracts, 0);
      ASSERT_LE(t.contracts, environment_.rules().max_contracts);
      // Fills are in whole cents a share.
      ASSERT_TRUE(t.kind == OptionTrade::Kind::kSettle || t.received % kSharesOfContract == 0);
      cash_ += t.received * t.contracts - commission;
      ASSERT_EQ(t.cash_after, cash_);
    }
  }

  void expect_state(const OptionsState& state) {
    int64_t marks = 0, reserved = 0;
    int used = 0;
    for (const OptionPosition& p : state.positions) {
      if (p.contracts == 0) {
        ASSERT_EQ(legs_held(p.legs), 0);
        continue;
      }
      ++used;
      ASSERT_GT(p.contracts, 0);
      ASSERT_GT(p.expiry, state.day);
      ASSERT_GE(p.reserve, 0);
      marks += p.mark * p.contracts;
      reserved += p.reserve * p.contracts;
    }
    ASSERT_LE(used, environment_.rules().positions);
    ASSERT_EQ(state.cash, cash_);
    ASSERT_EQ(state.value, cash_ + marks);
    ASSERT_EQ(state.reserved, reserved);
    ASSERT_GE(state.cash, reserved);
    ASSERT_EQ(state.orders, state.fills + state.rejected);
    ASSERT_GE(state.peak, state.value);
  }

 private:
  const OptionsEnvironment& environment_;
  int64_t cash_;
};

struct OptionsPlayed {
  int64_t steps = 0, fills = 0, rejected = 0, settled = 0, terminated = 0, truncated = 0;
  std::set<OptionStrategy> strategies;
};

// One episode of random actions; buys are more frequent than sales, so that slots fill up.
void play_episode(const OptionsEnvironment& environment, uint64_t seed, uint64_t episode, OptionsPlayed& played) {
  OptionsState state;
  reset_options(state, environment.market(), environment.rules(), {seed, episode, 0, 0}, 0);
  OptionsLedger ledger(environment, environment.rules().capital_cents);
  std::vector<OptionTrade> trades;
  for (uint64_t step = 0; state.end == 0; ++step) {
    const auto action =
        static_cast<int32_t>(random_below({seed, episode, 1, 1}, step, static_cast<uint32_t>(environment.actions())));
    const int64_t before = state.value;
    trades.clear();
    const Outcome outcome = environment.step_one(state, action, &trades);
    ASSERT_NO_FATAL_FAILURE(ledger.book(trades));
    ASSERT_NO_FATAL_FAILURE(ledger.expect_state(state)) << "episode " << episode << " step " << step;
    ASSERT_NEAR(outcome.reward, 100 * std::log(static_cast<double>(state.value) / static_cast<double>(before)),
                1e-6 * (1 + std::fabs(outcome.reward)));
    for (const OptionTrade& trade : trades) played.strategies.insert(trade.strategy);
    ++played.steps;
  }
  played.fills += state.fills;
  played.rejected += state.rejected;
  played.settled += state.settled;
  (state.end == static_cast<int32_t>(End::kTerminated) ? played.terminated : played.truncated) += 1;
}

OptionsPlayed play_steps(const OptionsRules& rules, double daily, int64_t steps) {
  const OptionsTestMarket market = random_options_market(3, 420, 11, daily);
  const OptionsEnvironment environment(market.view(), rules);
  OptionsPlayed played;
  for (uint64_t episode = 0; played.steps < steps; ++episode) {
    play_episode(environment, 5, episode, played);
    if (::testing::Test::HasFatalFailure()) break;
  }
  return played;
}

TEST(OptionsAccounting, EveryCentIsConservedOverAMillionRandomSteps) {
  const OptionsPlayed played = play_steps({}, 0.02, 500'000);
  EXPECT_GT(played.fills, 100'000);
  EXPECT_GT(played.rejected, 10'000);
  EXPECT_GT(played.settled, 10'000);
  EXPECT_GT(played.truncated, 1'000);
  const OptionsPlayed multi = play_steps({.order_share = 0.15, .multi_leg = 1}, 0.03, 500'000);
  EXPECT_GT(multi.settled, 10'000);
  EXPECT_GT(multi.terminated, 10);
  EXPECT_EQ(multi.strategies.size(), 10u);  // every one of them was traded
}

// Buys a call at the money and sells it at the next open, where nothing has moved but a day.
TEST(OptionsAccounting, ARoundTripPaysEachCostOnce) {
  const OptionsTestMarket market = flat_options_market(80);
  const OptionsRules rules;
  const OptionsEnvironment environment(market.view(), rules);
  const auto mid = [&](int days) { return option_price(OptionType::kCall, 100, 100, days / 252.0, 0.2, rules.rate); };
  const auto contracts = static_cast<int64_t>(0.05 * 1e7 / (100 * std::ceil(mid(21) * 1.01 * 100)));
  const double slip = 0.001 * (1 + static_cast<double>(contracts) / 50);
  const auto ask = static_cast<int64_t>(std::ceil(mid(21) * 1.01 * (1 + slip) * 100));
  const auto bid = static_cast<int64_t>(std::floor(mid(20) * 0.99 * (1 - slip) * 100));
  ASSERT_GT(contracts, 10);

  OptionsState state = environment.begin(0);
  const Outcome bought = environment.step_one(state, 1);
  EXPECT_EQ(state.positions[0].contracts, contracts);
  EXPECT_EQ(state.cash, 10'000'000 - contracts * (100 * ask + 65));
  EXPECT_EQ(state.value, state.cash + contracts * std::llround(mid(20) * 1e4));
  const int64_t spread_paid = contracts * (100 * ask - std::llround(mid(21) * 1e4));
  EXPECT_EQ(state.costs, spread_paid + 65 * contracts);
  const Outcome sold = environment.step_one(state, 21);
  EXPECT_EQ(state.cash, 10'000'000 - contracts * (100 * ask - 100 * bid + 130));
  EXPECT_EQ(state.value, state.cash);
  EXPECT_EQ(state.costs, spread_paid + contracts * (std::llround(mid(20) * 1e4) - 100 * bid) + 130 * contracts);
  EXPECT_EQ(state.traded, contracts * 100 * (ask + bid));
  // The rewards of the trip are the loss, and the terms the costs: nothing is charged beside the cash.
  EXPECT_NEAR(bought.reward + sold.reward, 100 * std::log(static_cast<double>(state.value) / 1e7), 1e-6);
  EXPECT_NEAR(bought.terms[0] + sold.terms[0], 1e-5 * static_cast<double>(state.costs), 1e-6);
  EXPECT_NEAR(bought.terms[1] + sold.terms[1], 1e-5 * static_cast<double>(state.traded), 1e-5);
}

TEST(OptionsAccounting, WithoutCostsARoundTripLosesOnlyTimeAndRounding) {
  const OptionsTestMarket market = flat_options_market(80);
  OptionsRules rules{.spread = 0, .spread_far = 0, .slippage = 0, .commission_cents = 0};
  const OptionsEnvironment environment(market.view(), rules);
  OptionsState state = environment.begin(0);
  environment.step_one(state, 1);
  const int64_t contracts = state.positions[0].contracts;
  environment.step_one(state, 21);
  const auto cents = [&](int days) {
    return option_price(OptionType::kCall, 100, 100, days / 252.0, 0.2, rules.rate) * 1e4;
  };
  const double decay = (cents(21) - cents(20)) * static_cast<double>(contracts);
  EXPECT_NEAR(static_cast<double>(10'000'000 - state.cash), decay, 200.0 * static_cast<double>(contracts));
  EXPECT_GE(static_cast<double>(10'000'000 - state.cash), decay - 1);  // rounded against the trader
}

TEST(OptionsAccounting, ADaysOwnSpreadReplacesTheRules) {
  OptionsTestMarket market = flat_options_market(80);
  for (MarketDay& day : market.days) day.spread = 0.10;
  const OptionsEnvironment environment(market.view(), {.slippage = 0, .commission_cents = 0});
  OptionsState state = environment.begin(0);
  environment.step_one(state, 1);
  const double mid = option_price(OptionType::kCall, 100, 100, 21 / 252.0, 0.2, 0.03);
  EXPECT_EQ(state.positions[0].entry, 100 * static_cast<int64_t>(std::ceil(mid * 1.05 * 100)));
}

// The spread widens up to |ln(K / S)| = .10, and slippage grows with the order.
TEST(OptionsAccounting, SpreadGrowsWithTheDistanceAndSlippageWithTheOrder) {
  const OptionsTestMarket market = flat_options_market(80, 100, 0.4);
  for (const int percent : {0, 4, 9}) {
    const OptionsEnvironment environment(market.view(), {});
    OptionsState state = environment.begin(0);
    environment.step_one(state, 1 + percent);
    const double strike = 100.0 + percent, mid = option_price(OptionType::kCall, 100, strike, 21 / 252.0, 0.4, 0.03);
    const double half = 0.5 * (0.02 + 0.03 * std::log(strike / 100) / 0.10);
    const double slip = 0.001 * (1 + state.positions[0].contracts / 50.0);
    EXPECT_EQ(state.positions[0].entry, 100 * static_cast<int64_t>(std::ceil(mid * (1 + half) * (1 + slip) * 100)));
  }
}

TEST(OptionsAccounting, HalfOfAPositionIsSoldAndAtLeastOneContract) {
  const OptionsTestMarket market = flat_options_market(80);
  const OptionsEnvironment environment(market.view(), {.max_contracts = 5});
  OptionsState state = environment.begin(0);
  environment.step_one(state, 1);
  ASSERT_EQ(state.positions[0].contracts, 5);
  const int64_t entry = state.positions[0].entry;
  for (const int32_t left : {3, 2, 1, 0}) {
    environment.step_one(state, 26);
    EXPECT_EQ(state.positions[0].contracts, left);
    EXPECT_EQ(state.positions[0].entry, left > 0 ? entry : 0);
  }
  EXPECT_EQ(state.value, state.cash);
  EXPECT_EQ(state.fills, 5);
}

}  // namespace
}  // namespace tandem
