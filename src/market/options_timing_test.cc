// What an order may know: strikes and size from the close of t, the fill from the open of t + 1, nothing after it.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "market/options_environment.h"
#include "market/options_test_market.h"

namespace tandem {
namespace {

// The first trade of `action`, decided at the first day of the range, after `change` was made to the market.
using MarketChange = std::function<void(std::vector<MarketDay>& days, size_t decided)>;
std::vector<OptionTrade> first_trades(const MarketChange& change, const std::vector<int32_t>& actions = {2}) {
  OptionsTestMarket market = random_options_market(1, 120, 3);
  const auto decided = static_cast<size_t>(market.ranges[0].first);
  change(market.days, decided);
  const OptionsEnvironment environment(market.view(), {.multi_leg = 1});
  OptionsState state = environment.begin(0);
  std::vector<OptionTrade> trades;
  for (const int32_t action : actions) environment.step_one(state, action, &trades);
  return trades;
}

bool same_trade(const OptionTrade& a, const OptionTrade& b) {
  return a.contracts == b.contracts && a.received == b.received && a.commission == b.commission &&
         a.cash_after == b.cash_after && std::memcmp(a.legs, b.legs, sizeof a.legs) == 0;
}

// Everything but the open of t + 1, and all days after it.
void another_future(std::vector<MarketDay>& days, size_t decided) {
  for (size_t i = decided + 1; i < days.size(); ++i) {
    if (i > decided + 1) days[i].open *= 1.5;
    days[i].close *= 1.6;
    days[i].high *= 1.7;
    days[i].low *= 1.4;
    days[i].volatility = 0.77;
    days[i].skew = 0.1;
    days[i].spread = 0.2;
  }
}

TEST(OptionsTiming, AFillUsesNothingAfterTheNextOpen) {
  for (const int32_t action : {1, 5, 14, 40, 63, 72, 84, 87, 89}) {
    const auto as_was = first_trades([](auto&, size_t) {}, {action});
    const auto changed = first_trades(another_future, {action});
    ASSERT_FALSE(as_was.empty());
    ASSERT_FALSE(changed.empty());
    EXPECT_TRUE(same_trade(as_was[0], changed[0])) << "action " << action;
  }
}

TEST(OptionsTiming, ASaleUsesNothingAfterTheNextOpen) {
  const auto later = [](std::vector<MarketDay>& days, size_t decided) { another_future(days, decided + 3); };
  const auto as_was = first_trades([](auto&, size_t) {}, {87, 0, 0, 21}), changed = first_trades(later, {87, 0, 0, 21});
  ASSERT_EQ(as_was.size(), 2u);
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_TRUE(same_trade(as_was[1], changed[1]));
}

TEST(OptionsTiming, TheOpenSaysThePriceAndNeitherStrikeNorSize) {
  const auto as_was = first_trades([](auto&, size_t) {});
  const auto gap = first_trades([](auto& days, size_t decided) { days[decided + 1].open *= 1.02; });
  EXPECT_GT(-gap[0].received, -as_was[0].received);
  EXPECT_EQ(gap[0].legs[0].strike, as_was[0].legs[0].strike);
  EXPECT_EQ(gap[0].contracts, as_was[0].contracts);
}

TEST(OptionsTiming, StrikeAndSizeComeFromTheCloseOfTheDecision) {
  double close = 0;
  const auto as_was = first_trades([&](auto& days, size_t decided) { close = days[decided].close; });
  EXPECT_EQ(as_was[0].legs[0].strike, to_nearest_cent(close * 1.01 * 1e4));
  const auto moved = first_trades([](auto& days, size_t decided) { days[decided].close *= 1.1; });
  EXPECT_EQ(moved[0].legs[0].strike, to_nearest_cent(close * 1.1 * 1.01 * 1e4));
  EXPECT_NE(moved[0].contracts, as_was[0].contracts);
  const auto wild = first_trades([](auto& days, size_t decided) { days[decided].volatility *= 2; });
  EXPECT_GT(-wild[0].received, -as_was[0].received) << "the volatility of the decision prices the fill";
  EXPECT_LT(wild[0].contracts, as_was[0].contracts);
}

// The own observation and the row of the table at t, under another future.
TEST(OptionsTiming, AnObservationUsesNothingAfterItsDay) {
  OptionsTestMarket market = random_options_market(1, 120, 3), changed = market;
  const auto first = static_cast<size_t>(market.ranges[0].first);
  constexpr size_t kDays = 12;
  another_future(changed.days, first + kDays);
  changed.days[first + kDays + 1].open *= 1.3;
  const OptionsEnvironment one(market.view(), {}), two(changed.view(), {});
  OptionsState a = one.begin(0), b = two.begin(0);
  for (size_t i = 0; i < kDays; ++i) {
    const auto action = static_cast<int32_t>(1 + 7 * i % 30);
    const Outcome x = one.step_one(a, action), y = two.step_one(b, action);
    EXPECT_EQ(x.reward, y.reward);
  }
  std::vector<float> seen(kOwnFeatures), seen_too(kOwnFeatures);
  one.observe(reinterpret_cast<const std::byte*>(&a), seen.data(), 1);
  two.observe(reinterpret_cast<const std::byte*>(&b), seen_too.data(), 1);
  EXPECT_EQ(seen, seen_too);
  EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
}

// A position is marked with the close and the volatility of the day after the fill's decision.
TEST(OptionsTiming, AMarkUsesTheCloseOfItsDay) {
  OptionsTestMarket market = random_options_market(1, 120, 3);
  const OptionsEnvironment environment(market.view(), {});
  OptionsState state = environment.begin(0);
  environment.step_one(state, 13);
  const MarketDay& today = market.days[static_cast<size_t>(state.day)];
  const OptionPosition& position = state.positions[0];
  const double strike = static_cast<double>(position.legs[0].strike) / 1e4;
  const double volatility = smile_volatility(today.volatility, today.skew, today.close, strike, 20 / 252.0);
  EXPECT_EQ(position.mark, to_nearest_cent(option_price(OptionType::kPut, today.close, strike, 20 / 252.0,
                                                        std::max(volatility, 0.05), 0.03) *
                                           1e4));
}

}  // namespace
}  // namespace tandem
