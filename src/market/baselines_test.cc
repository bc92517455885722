#include "market/baselines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/errors.h"
#include "kernels/philox.h"
#include "market/share_baselines.h"

namespace tandem {
namespace {

struct BaselineMarket {
  std::vector<MarketDay> days;
  std::vector<MarketView::Range> ranges;
  std::vector<std::string> names;

  // Opens at the close before.
  void add(const std::vector<double>& closes, int32_t first) {
    const auto begin = static_cast<int32_t>(days.size());
    for (size_t i = 0; i < closes.size(); ++i) {
      const auto d = static_cast<int32_t>(i);
      const double open = closes[i > 0 ? i - 1 : 0];
      days.push_back({.open = open,
                      .high = std::max(open, closes[i]),
                      .low = std::min(open, closes[i]),
                      .close = closes[i],
                      .volatility = .2,
                      .date = 20200101 + d / 336 * 10000 + d / 28 % 12 * 100 + d % 28,
                      .symbol = static_cast<int32_t>(names.size())});
    }
    ranges.push_back({begin + first, static_cast<int32_t>(days.size()) - 1});
    names.push_back("S" + std::to_string(names.size()));
  }
  MarketView view() const {
    return {.days = days.data(),
            .rows = static_cast<int64_t>(days.size()),
            .ranges = ranges.data(),
            .range_count = static_cast<int32_t>(ranges.size())};
  }
};

std::vector<double> walk(uint64_t seed, size_t n) {
  std::vector<double> closes{100};
  while (closes.size() < n)
    closes.push_back(closes.back() *
                     std::exp(.015 * static_cast<double>(random_normal({seed, 0, 0, 7}, closes.size()))));
  return closes;
}

// Black-Scholes by libm, apart from the project's own.
double call_price(double spot, double strike, double years, double rate, double volatility) {
  const double deviation = volatility * std::sqrt(years);
  const double d1 = (std::log(spot / strike) + rate * years) / deviation + deviation / 2;
  const auto phi = [](double x) { return .5 * std::erfc(-x / std::numbers::sqrt2); };
  return spot * phi(d1) - strike * std::exp(-rate * years) * phi(d1 - deviation);
}

const Baseline& baseline_named(const Baselines& all, const std::string& name) {
  for (const Baseline& one : all.list)
    if (one.name == name) return one;
  throw std::logic_error("no baseline " + name);
}

TEST(Baselines, BuyAndHoldBuysAtTheOpenAfterTheDecisionAndPaysItsCost) {
  BaselineMarket market;
  std::vector<double> closes(25, 100);
  closes.back() = 110;
  market.add(closes, 19);
  const ShareResult held = hold_shares(market.view(), market.ranges[0], {}, .001, "S0");
  // A share costs 100.10: 999 of them 99,999.90, 10 cents are left.
  EXPECT_EQ(held.curve.cents.front(), 10'000'000);
  EXPECT_EQ(held.curve.cents[1], 999 * 10'000 + 10);
  EXPECT_EQ(held.curve.cents[4], 999 * 10'000 + 10);
  EXPECT_EQ(held.curve.cents.back(), 999 * 10'989 + 10) << "sold at 110 less a tenth of a percent";
  EXPECT_EQ(held.curve.held, (std::vector<uint8_t>{0, 1, 1, 1, 1, 1}));
  ASSERT_EQ(held.trades.size(), 1u);
  EXPECT_EQ(held.trades[0].closed, 0);
}

TEST(Baselines, ASaleIsRoundedToACentOnceNotForEachShare) {
  BaselineMarket market;
  std::vector<double> closes(25, 100);
  closes.back() = 100.125;
  market.add(closes, 19);
  const ShareResult held = hold_shares(market.view(), market.ranges[0], {}, 0, "S0");
  EXPECT_EQ(held.curve.cents.back(), 1000 * 10'012 + 500);
}

TEST(Baselines, ACoveredCallEarnsThePremiumWhereNothingMoves) {
  BaselineMarket market;
  market.add(std::vector<double>(19 + 22, 100), 19);
  const OptionsRules rules;
  const ShareResult written = write_covered_calls(market.view(), market.ranges[0], rules, 0, "S0");
  const double mid = call_price(100, 102, 21 / 252.0, .03, .2);
  const double half = .5 * (.02 + .03 * std::log(1.02) / .1);
  const double bid = std::floor(100 * mid * (1 - half) * (1 - .001 * (1 + 10 / 50.0)));  // cents; 10 lots
  EXPECT_EQ(written.curve.cents.back(), 10'000'000 + 10 * (100 * static_cast<int64_t>(bid) - 65));
  ASSERT_EQ(written.trades.size(), 2u);  // the call, and the shares that are held on
  EXPECT_EQ(written.trades[0].bought_cents, 0);
  EXPECT_EQ(written.trades[1].closed, 0);
}

TEST(Baselines, AtTheEndTheCallIsBoughtBackAndTheSharesAreSoldCostsIn) {
  BaselineMarket market;
  market.add(std::vector<double>(19 + 12, 100), 19);  // eleven days after the decision, ten before the expiry
  const OptionsRules rules;
  const ShareResult written = write_covered_calls(market.view(), market.ranges[0], rules, .001, "S0");
  const double half = .5 * (.02 + .03 * std::log(1.02) / .1), slippage = .001 * (1 + 9 / 50.0);  // 9 lots
  const double sold = call_price(100, 102, 21 / 252.0, .03, .2), bought = call_price(100, 102, 10 / 252.0, .03, .2);
  const auto bid = static_cast<int64_t>(std::floor(100 * sold * (1 - half) * (1 - slippage)));
  const auto ask = static_cast<int64_t>(std::ceil(100 * bought * (1 + half) * (1 + slippage)));
  const int64_t cash = 10'000'000 - 9 * 1'001'000 + 9 * (100 * bid - 65);
  EXPECT_EQ(written.curve.cents.back(), cash + 9 * 999'000 - 9 * (100 * ask + 65));
  EXPECT_GT(written.curve.cents[written.curve.cents.size() - 2], written.curve.cents.back()) << "the costs of the end";
}

TEST(Baselines, ACoveredCallIsAssignedAtItsStrike) {
  BaselineMarket market;
  std::vector<double> closes(19 + 22, 100);
  closes.back() = 150;
  market.add(closes, 19);
  const ShareResult written = write_covered_calls(market.view(), market.ranges[0], {}, 0, "S0");
  ASSERT_EQ(written.trades.size(), 2u);
  const int64_t premium = written.trades[0].sold_cents;
  EXPECT_EQ(written.curve.cents.back(), 10 * 1'020'000 + premium);  // 10 lots at 102
  EXPECT_EQ(written.trades[0].bought_cents, 10 * 480'000);
  EXPECT_EQ(written.trades[1].sold_cents, 10 * 1'500'000);
  EXPECT_EQ(written.curve.held.back(), 0);
}

TEST(Baselines, CoveredCallsRollAndAccountForEveryCent) {
  BaselineMarket market;
  market.add(walk(3, 19 + 18 * 21 + 1), 19);  // the last day is an expiry
  const ShareResult written = write_covered_calls(market.view(), market.ranges[0], {}, .0005, "S0");
  int64_t closed = 0, profit = 0, held_for = 0;
  for (const ClosedTrade& trade : written.trades) {
    closed += trade.closed != 0;
    if (trade.closed != 0) profit += trade.profit_cents();
    if (trade.closed == 0) held_for += trade.bought_cents;
  }
  EXPECT_GT(closed, 18 + 2);  // a call every 21 days, and shares that were assigned
  EXPECT_LE(written.trades.size() - static_cast<size_t>(closed), 1u);
  // What is left is whole lots, sold at the last close.
  const int64_t worth = written.curve.cents.back() - 10'000'000 - profit + held_for;
  const double lot = market.days.back().close * (1 - .0005) * 100 * 100;
  EXPECT_EQ(worth, static_cast<int64_t>(std::round(static_cast<double>(worth) / lot) * lot));
  EXPECT_EQ(worth > 0, held_for > 0);
}

TEST(Baselines, AShareThatCostsMoreThanTheCapitalStaysInCashAndSaysSo) {
  BaselineMarket market;
  market.add(std::vector<double>(30, 5000), 19);
  const ShareResult written = write_covered_calls(market.view(), market.ranges[0], {}, 0, "S0");
  EXPECT_EQ(written.curve.cents.back(), 10'000'000);
  EXPECT_NE(written.note.find("S0: 100 shares cost more than its capital"), std::string::npos);
}

// Wilder's smoothing of these closes, by hand in a spreadsheet's way: 14 changes, 3.34 up and 1.40 down.
TEST(Baselines, RsiIsWilders) {
  BaselineMarket market;
  market.add({44.34, 44.09, 44.15, 43.61, 44.33, 44.83, 45.10, 45.42, 45.84, 46.08, 45.89, 46.03, 45.61, 46.28, 46.28,
              46.00, 46.03},
             1);
  const auto rsi = rsi_of(market.view(), 0, 16);
  EXPECT_EQ(rsi[13], 50);
  EXPECT_NEAR(rsi[14], 100 * 3.34 / (3.34 + 1.40), 1e-9);
  const double up = 3.34 / 14 * 13 / 14, down = 1.40 / 14 * 13 / 14 + .28 / 14;
  EXPECT_NEAR(rsi[15], 100 * up / (up + down), 1e-9);
}

TEST(Baselines, MacdOfAJumpDecaysByItsThreeMeans) {
  BaselineMarket market;
  std::vector<double> closes(60, 100);
  for (size_t i = 30; i < 60; ++i) closes[i] = 110;
  market.add(closes, 19);
  const auto macd = macd_of(market.view(), 0, 59);
  EXPECT_EQ(macd[29], 0);
  const double first = 10 * (2 / 13.0 - 2 / 27.0);
  EXPECT_NEAR(macd[30], first * (1 - .2), 1e-12);
  const double second = 10 * (std::pow(25 / 27.0, 2) - std::pow(11 / 13.0, 2));
  const double signal = .2 * first + .2 * (second - .2 * first);
  EXPECT_NEAR(macd[31], second - signal, 1e-12);
}

TEST(Baselines, CashMovesOnlyByItsTrades) {
  BaselineMarket market;
  market.add(walk(5, 300), 19);
  for (const int32_t multi_leg : {0, 1}) {
    const OptionsEnvironment environment(market.view(), {.multi_leg = multi_leg});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const SymbolPlay play = play_range(environment, 0, "S0", [&](const OptionsState& state) {
        return static_cast<int32_t>(random_below({seed, 0, 0, 3}, static_cast<uint64_t>(state.day),
                                                 static_cast<uint32_t>(environment.actions())));
      });
      ASSERT_GT(play.trades.size(), 10u);
      int64_t cash = 10'000'000;
      size_t contracts_closed = 0;
      for (const ClosedTrade& trade : closed_trades(play)) {
        EXPECT_GE(trade.bought_cents, 0);
        cash += trade.profit_cents();
        contracts_closed += trade.closed != 0;
      }
      EXPECT_EQ(cash, play.trades.back().cash_after);
      EXPECT_GT(contracts_closed, 3u);
    }
  }
}

TEST(Baselines, APositionIsHeldFromItsFillToItsEnd) {
  BaselineMarket market;
  market.add(walk(6, 80), 19);
  const OptionsEnvironment environment(market.view(), {});
  const SymbolPlay play = play_range(environment, 0, "S0", [&](const OptionsState& state) {
    return state.steps == 2 ? 1 : state.steps == 6 ? 26 : state.steps == 8 ? 21 : 0;
  });
  const EquityCurve curve = equity_curve(play);
  for (size_t i = 0; i < curve.held.size(); ++i) EXPECT_EQ(curve.held[i], i >= 3 && i < 9) << i;
  const auto trades = closed_trades(play);
  ASSERT_EQ(trades.size(), 1u);
  EXPECT_EQ(trades[0].opened, play.dates[3]);
  EXPECT_EQ(trades[0].closed, play.dates[9]);
  EXPECT_EQ(curve.cents.back() - 10'000'000, trades[0].profit_cents());
}

TEST(Baselines, NoneKnowsTheFuture) {
  BaselineMarket market;
  market.add(walk(8, 300), 19);
  market.add(walk(9, 200), 40);
  BaselineMarket other = market;
  constexpr int32_t kCut = 150;
  for (size_t i = 0; i < other.days.size(); ++i) {
    const size_t day = i < 300 ? i : i - 300;
    if (day <= kCut) continue;
    const double factor = day % 2 == 0 ? 2 : .5;
    other.days[i].open *= factor, other.days[i].close *= factor, other.days[i].volatility = .9;
  }
  const Baselines a = play_baselines(OptionsEnvironment(market.view(), {}), market.names, {.players = 3});
  const Baselines b = play_baselines(OptionsEnvironment(other.view(), {}), other.names, {.players = 3});
  const int32_t last_known = market.days[kCut].date;
  size_t compared = 0;
  for (size_t k = 0; k < a.list.size(); ++k) {
    if (a.list[k].name == "random") continue;  // the median player is chosen by the end
    for (size_t i = 0; i < a.list[k].curve.dates.size() && a.list[k].curve.dates[i] <= last_known; ++i, ++compared)
      EXPECT_EQ(a.list[k].curve.cents[i], b.list[k].curve.cents[i]) << a.list[k].name << " " << i;
  }
  EXPECT_GT(compared, 600u);
}

TEST(Baselines, AllAreThereAndRulesTrade) {
  BaselineMarket market;
  market.add(walk(11, 500), 100);
  market.add(walk(12, 400), 100);
  const Baselines all = play_baselines(OptionsEnvironment(market.view(), {}), market.names, {.players = 9});
  ASSERT_EQ(all.list.size(), 7u);
  for (const Baseline& one : all.list) {
    EXPECT_EQ(one.curve.dates.size(), 400u) << one.name;
    EXPECT_EQ(one.curve.cents.front(), 20'000'000) << one.name;
    EXPECT_EQ(one.trades.empty(), one.name == "cash") << one.name;
  }
  EXPECT_EQ(baseline_named(all, "cash").curve.cents.back(), 20'000'000);
  // One call after the other: one every 22 days, less a day that waits for the fill.
  EXPECT_NEAR(static_cast<double>(baseline_named(all, "always a call").trades.size()), 700 / 21.0, 4);
  ASSERT_EQ(all.random_returns.size(), 9u);
  EXPECT_TRUE(std::is_sorted(all.random_returns.begin(), all.random_returns.end()));
  const EquityCurve& random = baseline_named(all, "random").curve;
  EXPECT_NEAR(static_cast<double>(random.cents.back()) / 2e7 - 1, all.random_returns[4], 1e-12);
}

TEST(Baselines, TravelAsJson) {
  BaselineMarket market;
  market.add(walk(13, 120), 19);
  const OptionsEnvironment environment(market.view(), {.multi_leg = 1});
  const Baselines all = play_baselines(environment, market.names, {.players = 2});
  const Baselines back = baselines_of_json(json_of_baselines(all));
  EXPECT_EQ(json_of_baselines(back), json_of_baselines(all));
  const SymbolPlay play =
      play_range(environment, 0, "S0", [](const OptionsState& state) { return state.steps % 9 == 0 ? 86 : 0; });
  ASSERT_FALSE(play.trades.empty());
  const SymbolPlay again = play_of_json(json_of_play(play));
  EXPECT_EQ(json_of_play(again), json_of_play(play));
  EXPECT_EQ(trade_line(again.trades[0], "S0"), trade_line(play.trades[0], "S0"));
  nlohmann::json cut = json_of_play(play);
  cut["actions"].erase(0);
  EXPECT_THROW(play_of_json(cut), Error);
  cut.erase("trades");
  EXPECT_THROW(play_of_json(cut), Error);
}

}  // namespace
}  // namespace tandem
