#include "telemetry/training_stats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

StepRecord stats_record(int64_t step, int64_t epoch = -1) {
  StepRecord r;
  r.step = step, r.epoch = epoch, r.loss = static_cast<double>(step), r.seconds = 0.5, r.samples = 10,
  r.learning_rate = 0.1;
  r.metrics = {{"accuracy", 0.25}, {"game_stats/avg_moves", 40.0}};
  r.phase_seconds = {{"learn", 0.4}};
  return r;
}

TEST(TrainingStats, OneEntryPerEpochWhereThereAreEpochs) {
  TrainingStats stats(1000);
  for (int64_t s = 1; s <= 30; ++s) stats.add(stats_record(s, (s - 1) / 10));
  const auto json = stats.to_json();
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[1]["iteration"], 1);
  EXPECT_EQ(json[1]["step"], 20);
  EXPECT_EQ(json[1]["loss"], 15.5);
  EXPECT_EQ(json[1]["samples_per_s"], 20.0);
  EXPECT_EQ(json[1]["seconds"], 5.0);
  EXPECT_EQ(json[1]["metrics"]["accuracy"], 0.25);
  EXPECT_EQ(json[1]["game_stats"]["avg_moves"], 40.0);
  EXPECT_EQ(json[1]["training_losses"]["total_loss"], 15.5);
  EXPECT_NEAR(json[1]["phases"]["learn"].get<double>(), 4, 1e-9);
}

TEST(TrainingStats, AboutAHundredEntriesForAKnownNumberOfSteps) {
  TrainingStats stats(12345);
  for (int64_t s = 1; s <= 12345; ++s) stats.add(stats_record(s));
  EXPECT_EQ(stats.entries(), 100u);
}

TEST(TrainingStats, AnUnknownNumberOfStepsStaysBoundedAndLosesNothing) {
  TrainingStats stats(0);
  for (int64_t s = 1; s <= 100000; ++s) stats.add(stats_record(s));
  EXPECT_LT(stats.entries(), 200u);
  EXPECT_GE(stats.entries(), 99u);
  int64_t steps = 0, last = 0;
  for (const auto& entry : stats.to_json()) {
    steps += entry["steps"].get<int64_t>();
    EXPECT_GT(entry["step"].get<int64_t>(), last);
    last = entry["step"];
  }
  EXPECT_EQ(steps, 100000);
}

TEST(TrainingStats, AResumedRunReplayedEndsWithTheSameEntries) {
  for (const int64_t total : {0, 1000}) {
    TrainingStats whole(total), resumed(total);
    for (int64_t s = 1; s <= 777; ++s) whole.add(stats_record(s));
    for (int64_t s = 1; s <= 777; ++s) resumed.add(stats_record(s));  // as Telemetry does from metrics.jsonl
    EXPECT_EQ(whole.to_json(), resumed.to_json());
  }
}

TEST(TrainingStats, LossesThatAreNoNumberAreCountedOutOfTheMean) {
  TrainingStats stats(2);
  auto bad = stats_record(1, 0);
  bad.loss = NAN, bad.skipped = true;
  stats.add(bad);
  EXPECT_TRUE(stats.to_json()[0]["loss"].is_null());
  stats.add(stats_record(2, 0));
  EXPECT_EQ(stats.to_json()[0]["loss"], 2.0);
  EXPECT_EQ(stats.to_json()[0]["skipped"], 1);
}

TEST(TrainingStats, JobsHaveEntriesOfTheirOwn) {
  TrainingStats stats(0);
  for (const char* job : {"a", "b"}) {
    auto r = stats_record(1, 0);
    r.job = job;
    stats.add(r);
  }
  const auto json = stats.to_json();
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["job"], "b");
}

TEST(TrainingStats, AMetricNamedLikeAKeyOverwritesNothing) {
  TrainingStats stats(1);
  auto r = stats_record(1, 0);
  r.metrics = {{"loss/extra", 9.0}};
  stats.add(r);
  EXPECT_EQ(stats.to_json()[0]["loss"], 1.0);
  EXPECT_EQ(stats.to_json()[0]["metrics"]["loss/extra"], 9.0);
}

}  // namespace
}  // namespace tandem
