#include "market/look_ahead.h"

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "market/generated_market.h"
#include "market/market_table.h"

namespace tandem {
namespace {

MarketData two_symbols() { return generate_market({.symbols = 2, .days = 260, .seed = 5}).data; }

// Buys a call or a put as `up` says, sells what it has on the next day.
using Says = std::function<bool(const MarketTable&, const OptionsState&)>;
std::vector<SymbolPlay> play_by(const MarketData& data, const Says& up, bool scaler_of_all_days = false) {
  MarketTable table(data);
  std::vector<MarketView::Range> ranges = table.tradable_ranges(), training = ranges;
  for (size_t i = 0; i < ranges.size(); ++i) ranges[i].first += 100, training[i].last = ranges[i].first - 30;
  table.scale(table.fit(scaler_of_all_days ? table.tradable_ranges() : training));
  const OptionsEnvironment environment(table.view(ranges), {});
  std::vector<SymbolPlay> plays;
  for (int32_t range = 0; range < 2; ++range)
    plays.push_back(
        play_range(environment, range, table.names()[static_cast<size_t>(range)], [&](const OptionsState& s) {
          return s.positions[0].contracts > 0 ? 21 : up(table, s) ? 1 : 11;
        }));
  return plays;
}

LookAhead found_in(const Says& up, bool scaler_of_all_days = false) {
  const MarketData data = two_symbols();
  const auto played = [&](const MarketData& of) { return play_by(of, up, scaler_of_all_days); };
  return find_look_ahead(data, played(data), played, 6);
}

double close_of(const MarketTable& table, int32_t row) { return table.days()[static_cast<size_t>(row)].close; }

TEST(LookAhead, IsNotFoundInWhoDecidesByThePast) {
  const LookAhead found = found_in([](const MarketTable& table, const OptionsState& s) {
    return close_of(table, s.day) > close_of(table, s.day - 3);
  });
  EXPECT_FALSE(found.first_difference) << json_of_look_ahead(found).dump();
  EXPECT_EQ(found.cuts, 6);
  EXPECT_GT(found.days_checked, 200);
  EXPECT_EQ(json_of_look_ahead(found)["verdict"], "none");
}

TEST(LookAhead, IsFoundInWhoKnowsTomorrow) {
  const LookAhead found = found_in([](const MarketTable& table, const OptionsState& s) {
    return close_of(table, s.day + 1) > close_of(table, s.day);
  });
  ASSERT_TRUE(found.first_difference);
  EXPECT_LE(found.first_difference->date, found.first_difference->changed_after);
  EXPECT_EQ(json_of_look_ahead(found)["verdict"], "found");
}

TEST(LookAhead, IsFoundInWhoKnowsTheDirectionOfTomorrowsSession) {
  const LookAhead found = found_in([](const MarketTable& table, const OptionsState& s) {
    const MarketDay& tomorrow = table.days()[static_cast<size_t>(s.day + 1)];
    return tomorrow.close > tomorrow.open;
  });
  EXPECT_TRUE(found.first_difference);
}

TEST(LookAhead, OfAPlayThatNoFutureChangesIsUntested) {
  const MarketData data = two_symbols();
  const auto nothing = [](const MarketData& of) {
    MarketTable table(of);
    const auto ranges = table.tradable_ranges();
    const OptionsEnvironment environment(table.view(ranges), {});
    return std::vector<SymbolPlay>{play_range(environment, 0, "A", [](const OptionsState&) { return 0; })};
  };
  EXPECT_EQ(json_of_look_ahead(find_look_ahead(data, nothing(data), nothing, 6))["verdict"], "untested");
}

TEST(LookAhead, IsFoundInWhatWasSeenThoughTheActionIsTheSame) {
  const MarketData data = two_symbols();
  const auto peeks = [](const MarketData& of) {
    MarketTable table(of);
    const auto ranges = table.tradable_ranges();
    const OptionsEnvironment environment(table.view(ranges), {});
    RangePlay play(environment, 0, "A");
    while (!play.done())
      play.take(play.state().steps % 3 == 0 ? 1 : 0, std::bit_cast<uint64_t>(close_of(table, play.state().day + 1)));
    return std::vector<SymbolPlay>{std::move(play.result())};
  };
  const LookAhead found = find_look_ahead(data, peeks(data), peeks, 6);
  ASSERT_TRUE(found.first_difference);
  EXPECT_GE(found.decisions_exposed, 1);
}

TEST(LookAhead, IsFoundInAScalerThatKnowsTheTestDays) {
  const Says by_feature = [](const MarketTable& table, const OptionsState& s) {
    return table.features()[static_cast<size_t>(s.day) * kMarketFeatures + 7] > 0;
  };
  EXPECT_FALSE(found_in(by_feature).first_difference);
  EXPECT_TRUE(found_in(by_feature, true).first_difference);
}

TEST(LookAhead, ComparesTheDaysUpToEachCutAndNoOther) {
  const MarketData data = two_symbols();
  const Says past = [](const MarketTable& table, const OptionsState& s) {
    return close_of(table, s.day) > close_of(table, s.day - 1);
  };
  const auto plays = play_by(data, past);
  std::vector<SymbolPlay> seen;
  int64_t different = 0;
  find_look_ahead(
      data, plays,
      [&](const MarketData& of) {
        seen = play_by(of, past);
        for (size_t i = 0; i < plays.size(); ++i) different += seen[i].equity_cents != plays[i].equity_cents;
        return seen;
      },
      4);
  EXPECT_GE(different, 6) << "another future leads to another end";
}

}  // namespace
}  // namespace tandem
