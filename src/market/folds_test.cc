#include "market/folds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/errors.h"
#include "kernels/philox.h"

namespace tandem {
namespace {

int32_t fold_date(int32_t day) { return 20100101 + day / 336 * 10000 + day / 28 % 12 * 100 + day % 28; }

struct FoldMarket {
  std::vector<MarketDay> days;
  std::vector<std::string> names;
  // Days [first, last) of the calendar, without those that `missing` says.
  template <class Missing>
  void add(int32_t first, int32_t last, const Missing& missing) {
    for (int32_t d = first; d < last; ++d)
      if (!missing(d)) days.push_back({.close = 1, .date = fold_date(d), .symbol = static_cast<int32_t>(names.size())});
    names.push_back("S" + std::to_string(names.size()));
  }
  void add(int32_t first, int32_t last) {
    add(first, last, [](int32_t) { return false; });
  }
  MarketView view() const { return {.days = days.data(), .rows = static_cast<int64_t>(days.size())}; }
};

std::string fold_error(const FoldMarket& market, const FoldPlan& plan) {
  try {
    walk_forward_folds(market.view(), market.names, plan);
  } catch (const ConfigError& error) {
    return std::string(error.what()) + " | " + error.why() + " | " + error.todo();
  }
  return "";
}

// Days of the calendar between two dates, both left out.
int64_t days_between(const std::vector<int32_t>& calendar, int32_t from, int32_t to) {
  return std::lower_bound(calendar.begin(), calendar.end(), to) -
         std::upper_bound(calendar.begin(), calendar.end(), from);
}

void expect_gap(const FoldMarket& market, const std::vector<int32_t>& calendar, const MarketView::Range& before,
                const MarketView::Range& after, int32_t gap) {
  const MarketDay &last = market.days[static_cast<size_t>(before.last)],
                  &first = market.days[static_cast<size_t>(after.first)];
  EXPECT_LT(last.date, first.date);
  EXPECT_GE(days_between(calendar, last.date, first.date), gap);
  if (last.symbol == first.symbol) {
    EXPECT_GE(after.first - before.last - 1, gap);
  }
}

void expect_purged(const FoldMarket& market, const FoldPlan& plan) {
  std::vector<int32_t> calendar;
  for (const MarketDay& day : market.days) calendar.push_back(day.date);
  std::sort(calendar.begin(), calendar.end());
  calendar.erase(std::unique(calendar.begin(), calendar.end()), calendar.end());
  const auto folds = walk_forward_folds(market.view(), market.names, plan);
  ASSERT_EQ(folds.size(), static_cast<size_t>(plan.folds));
  const int32_t gap = plan.purge_days + plan.embargo_days;
  for (const MarketFold& fold : folds) {
    ASSERT_FALSE(fold.test.empty());
    ASSERT_EQ(fold.train.size(), fold.test.size());
    ASSERT_EQ(fold.validation.size(), fold.test.size());
    // Every symbol against every other: a day of one tells of that day of another.
    for (const auto& test : fold.test) {
      for (const auto& train : fold.train) expect_gap(market, calendar, train, test, gap);
      for (const auto& validation : fold.validation) expect_gap(market, calendar, validation, test, gap);
    }
    for (const auto& validation : fold.validation)
      for (const auto& train : fold.train) expect_gap(market, calendar, train, validation, gap);
    for (size_t i = 0; i < fold.test.size(); ++i)
      for (const auto& range : {fold.train[i], fold.validation[i], fold.test[i]}) {
        ASSERT_LE(range.first, range.last);
        const auto first = static_cast<size_t>(range.first), last = static_cast<size_t>(range.last);
        EXPECT_EQ(market.days[first].symbol, market.days[last].symbol);
        EXPECT_EQ(market.days[first].symbol, market.days[static_cast<size_t>(fold.test[i].first)].symbol);
        // The window before the first row is of the same symbol.
        ASSERT_GE(range.first, plan.warm_up_days);
        EXPECT_EQ(market.days[first - static_cast<size_t>(plan.warm_up_days)].symbol, market.days[first].symbol);
      }
  }
  for (size_t k = 1; k < folds.size(); ++k) EXPECT_EQ(folds[k].test_first, folds[k - 1].test_last);
  EXPECT_EQ(folds.back().test_last, calendar.back());
}

TEST(Folds, NoTrainingDayIsWithinThePurgeOfATestDay) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomKey key{seed, 0, 0, 1};
    const auto draw = [&](uint64_t i, uint32_t n) { return static_cast<int32_t>(random_below(key, i, n)); };
    const int32_t calendar = 700 + draw(0, 1500);
    FoldMarket market;
    market.add(0, calendar);
    for (uint64_t s = 0; s < 4; ++s) {  // some begin late, some end early, all have holes
      const int32_t first = draw(10 + s, static_cast<uint32_t>(calendar / 4));
      const int32_t last = calendar - draw(20 + s, static_cast<uint32_t>(calendar / 5));
      market.add(first, last,
                 [&](int32_t d) { return draw(1000 + 5000 * s + static_cast<uint64_t>(d), 100) < 5 * int32_t(s); });
    }
    FoldPlan plan{.folds = 1 + draw(1, 6)};
    plan.test_share = .2 + .05 * draw(2, 5);
    plan.embargo_days = draw(3, 10);
    plan.purge_days = 10 + draw(4, 40);
    SCOPED_TRACE(seed);
    expect_purged(market, plan);
  }
}

TEST(Folds, EveryDayAfterTheFirstDecisionIsTestedOnce) {
  FoldMarket market;
  market.add(0, 1000);
  const auto folds = walk_forward_folds(market.view(), market.names, {.folds = 4, .test_share = .4});
  EXPECT_EQ(folds[0].test[0].first, 599);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(folds[k].test[0].last - folds[k].test[0].first, 100);
  EXPECT_EQ(folds[3].test[0].last, 999);
  // 46 days between: 41 of purge, 5 of embargo.
  EXPECT_EQ(folds[0].validation[0].last, 599 - 47);
  EXPECT_EQ(folds[0].validation[0].last - folds[0].validation[0].first + 1, 90);  // .15 of 599
  EXPECT_EQ(folds[0].train[0].last, folds[0].validation[0].first - 47);
  EXPECT_EQ(folds[0].train[0].first, 19);
}

TEST(Folds, AYoungSymbolJoinsOnceItHasEnoughDays) {
  FoldMarket market;
  market.add(0, 1000);
  market.add(500, 1000);
  const auto folds = walk_forward_folds(market.view(), market.names, {.folds = 4, .test_share = .4});
  EXPECT_EQ(folds[0].test.size(), 1u);
  ASSERT_EQ(folds[0].left_out.size(), 1u);
  EXPECT_NE(folds[0].left_out[0].find("S1: 0 days to train on before"), std::string::npos);
  EXPECT_EQ(folds[3].test.size(), 2u);
  EXPECT_TRUE(folds[3].left_out.empty());
}

TEST(Folds, ASymbolThatIsTooShortIsNamedWithWhatToDo) {
  FoldMarket market;
  market.add(0, 1000);
  market.add(970, 1000);
  const std::string said = fold_error(market, {});
  EXPECT_NE(said.find("S1 is too short for any fold: it has 30 days"), std::string::npos) << said;
  EXPECT_NE(said.find("days to train on before"), std::string::npos) << said;
  EXPECT_NE(said.find("leave it out"), std::string::npos) << said;
}

TEST(Folds, TooLittleHistoryIsRefusedWithTheSum) {
  FoldMarket market;
  market.add(0, 250);
  EXPECT_NE(fold_error(market, {}).find("fold 1 of 4 has too few days to train on"), std::string::npos);
  EXPECT_NE(fold_error(market, {.folds = 200}).find("too few for 200 test periods"), std::string::npos);
  EXPECT_NE(fold_error(market, {.folds = 0}).find("0 walk-forward folds"), std::string::npos);
  EXPECT_NE(fold_error(market, {.test_share = 1}).find("test_share 1"), std::string::npos);
  EXPECT_NE(fold_error(FoldMarket{}, {}).find("without days"), std::string::npos);
}

TEST(Folds, DaysOutOfOrderAreRefused) {
  FoldMarket market;
  market.add(0, 1000);
  std::swap(market.days[5], market.days[6]);
  EXPECT_NE(fold_error(market, {}).find("the days of S0 are not in order"), std::string::npos);
}

}  // namespace
}  // namespace tandem
