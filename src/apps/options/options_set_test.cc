#include "apps/options/options_set.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "config/resolver.h"
#include "market/generated_market.h"
#include "recipes/options_market.h"
#include "recipes/options_world.h"

namespace tandem {
namespace {

OptionsSettings small_options() {
  OptionsSettings s;
  s.market.symbols = 3;
  s.market.days = 900;
  return s;
}

TEST(OptionsSet, IsEverySeedOfEveryFold) {
  OptionsSettings s;
  s.walk_forward = 3;
  s.seeds = 2;
  s.seed = 7;
  std::vector<std::string> names;
  for (const FoldJob& job : fold_jobs(s)) {
    names.push_back(job.name());
    EXPECT_EQ(job.folds, 3);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"fold-1-seed-7", "fold-1-seed-8", "fold-2-seed-7", "fold-2-seed-8",
                                             "fold-3-seed-7", "fold-3-seed-8"}));
  s.walk_forward = 0;
  s.fold = 2;
  ASSERT_EQ(fold_jobs(s).size(), 2u);
  EXPECT_EQ(fold_jobs(s)[1].name(), "fold-2-seed-8");
  EXPECT_TRUE(s.is_set());
  s.seeds = 1;
  EXPECT_FALSE(s.is_set());
}

TEST(OptionsSet, EndsByWhateverComesFirst) {
  OptionsSettings s;
  const int64_t by_episodes = s.updates_of_episodes();
  EXPECT_EQ(by_episodes % s.updates_per_rollout(), 0);
  EXPECT_GE(by_episodes / s.updates_per_rollout() * s.rollout_steps(), s.episodes * s.episode_days);
  EXPECT_EQ(last_update(s), by_episodes);
  s.steps = 10;
  EXPECT_EQ(last_update(s), 10);
  s.steps = 0;
  s.iterations = 2;
  EXPECT_EQ(last_update(s), 2 * s.updates_per_rollout());
  s.iterations = s.episodes = 0;
  EXPECT_EQ(last_update(s), 0);
}

TEST(OptionsSettings, AFairMarketHasNoRateAndNoEdge) {
  OptionsSettings s;
  s.market.fair = true;
  EXPECT_THROW(s.check(), ConfigError) << "sellers of calls would earn the rate";
  s.rate = 0;
  s.check();
  s.market.edge = .1;
  EXPECT_THROW(s.check(), ConfigError);
}

TEST(OptionsSettings, OlderCheckpointsWithoutAYoungerKeyHadItsDefaultAndGoOn) {
  OptionsSettings settings;
  const Resolver resolver(settings);
  const nlohmann::json now = resolver.result_values();
  const std::vector<std::pair<std::string, nlohmann::json>> younger = {{"data_last", 20260105}, {"market.fair", true}};
  for (const auto& [key, other] : younger) {
    nlohmann::json then = now, changed = now;
    ASSERT_EQ(then.erase(key), 1u) << key;
    EXPECT_NO_THROW(check_compatible(then, now, "an older run")) << key;
    changed[key] = other;
    EXPECT_THROW(check_compatible(then, changed, "an older run"), ConfigError) << key;
    EXPECT_THROW(check_compatible(now, changed, "a run"), ConfigError) << key;
  }
}

TEST(OptionsWorld, OfOtherDataIsTheDaysThatAreAskedFor) {
  OptionsSettings s = small_options();
  const MarketData data = market_of_run(s);
  const OptionsWorld whole(data, s), all(data, s, whole.scaler());
  const auto date = [&](const std::vector<MarketView::Range>& ranges, int32_t row) {
    return all.environment(ranges)->market().days[row].date;
  };
  const MarketView::Range first = all.all_ranges()[0];
  const DateSpan span{date(all.all_ranges(), first.first + 10), date(all.all_ranges(), first.first + 30)};
  const OptionsWorld part(data, s, whole.scaler(), span);
  ASSERT_EQ(part.all_ranges().size(), 3u);
  EXPECT_EQ(part.all_ranges()[0].first, first.first + 10);
  EXPECT_EQ(part.all_ranges()[0].last, first.first + 30);
  EXPECT_THROW(OptionsWorld(data, s, whole.scaler(), {20990101, 20990201}), ConfigError);
  EXPECT_THROW(OptionsWorld(data, s, whole.scaler(), {20000101, 20000201}), ConfigError);
}

TEST(OptionsWorld, KeepsItsPartsApartAndScalesByTheTrainingDays) {
  for (const int64_t fold : {1, 4}) {
    OptionsSettings s = small_options();
    s.fold = fold;
    const MarketData data = market_of_run(s);
    const OptionsWorld world(data, s);
    const MarketFold& parts = world.fold();
    EXPECT_LT(parts.train_last, parts.validation_first);
    EXPECT_LT(parts.validation_last, parts.test_first);
    const auto training = world.environment(parts.train), test = world.environment(parts.test);
    for (size_t i = 0; i < parts.train.size(); ++i)
      EXPECT_GE(parts.test[i].first - parts.train[i].last, kWindow + s.expiry_days + s.embargo_days);
    const MarketTable plain(data, features_of(s));
    EXPECT_EQ(world.scaler().mean, plain.fit(parts.train).mean);
    EXPECT_EQ(training->market().features, test->market().features) << "one table, one scaler";
  }
}

TEST(OptionsWorld, ValidationEpisodesLieInTheValidationDaysEvenlySpread) {
  OptionsSettings s = small_options();
  const OptionsWorld world(market_of_run(s), s);
  const auto episodes = world.validation_episodes(32);
  EXPECT_EQ(episodes.size(), 33u);  // 11 of each symbol
  std::vector<int> of_range(3);
  for (const ValidationEpisode& one : episodes) {
    const MarketView::Range range = world.fold().validation[static_cast<size_t>(one.range)];
    EXPECT_GE(one.first, range.first);
    EXPECT_LE(one.first + one.days, range.last);
    EXPECT_NEAR(one.days, (range.last - range.first) * 2.0 / 3, 1);
    ++of_range[static_cast<size_t>(one.range)];
  }
  EXPECT_EQ(of_range, (std::vector<int>{11, 11, 11}));
  EXPECT_EQ(episodes.front().first, world.fold().validation[0].first);
  EXPECT_EQ(episodes[10].first + episodes[10].days, world.fold().validation[0].last);
}

TEST(OptionsWorld, DaysThatArriveLaterAreNoPartOfARun) {
  OptionsSettings s = small_options();
  const MarketData whole = market_of_run(s);
  const int32_t last = whole.symbols[0].bars[879].date;
  const MarketData before = days_until(whole, last);
  EXPECT_EQ(last_date(before), last);
  EXPECT_EQ(before.symbols[1].bars.size(), 880u);
  EXPECT_EQ(before.symbols[1].implied.size(), 880u);
  s.data_digest = before.digest();
  EXPECT_THROW(market_of_run(s), ConfigError) << "it does not know its last day";
  s.data_last = last;
  const MarketData found = market_of_run(s);
  EXPECT_EQ(found.digest(), before.digest());
  EXPECT_NE(found.description.find("are left out"), std::string::npos) << found.description;
}

TEST(OptionsWorld, DataThatChangedAreRefused) {
  OptionsSettings s = small_options();
  s.data_digest = market_of_run(s).digest();
  market_of_run(s);
  s.market.seed = 2;
  EXPECT_THROW(market_of_run(s), ConfigError);
}

}  // namespace
}  // namespace tandem
