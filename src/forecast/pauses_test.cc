#include "forecast/pauses.h"

#include <gtest/gtest.h>

#include "forecast/rows.h"
#include "forecast/trial_sample.h"

namespace tandem {
namespace {

PauseQuestion question() {
  return {
      .rule = {.automatic = false}, .training = 100, .steps = 1000, .snapshot = .001, .bytes = 4e8, .busy_cores = 1};
}

TEST(Pauses, SnapshotsComeByTimeAndAreAtMostAHundredthOfIt) {
  PauseQuestion q = question();
  q.bytes = 1e6;
  EXPECT_NEAR(pauses_of(q).snapshots, 66, 1);
  EXPECT_NEAR(pauses_of(q).snapshot_seconds, .066, .002);
  q.snapshot = .1;  // every 20 s then
  EXPECT_NEAR(pauses_of(q).snapshots, 5, 1);
  for (const double snapshot : {.001, .01, .1, 1.0}) {
    q.snapshot = snapshot;
    EXPECT_LE(pauses_of(q).snapshot_seconds, .01 * q.training + snapshot);
  }
  q.training = 1;
  EXPECT_EQ(pauses_of(q).seconds(), 0) << "over before the first one";
}

TEST(Pauses, CheckpointsByTimeAreNeverTwoAtOnce) {
  PauseQuestion q = question();
  q.rule.seconds = .1;
  q.bytes = 4e9;  // ten seconds each
  EXPECT_EQ(pauses_of(q).checkpoints, 10);
}

TEST(Rows, WorkersKeepAtMostAllCoresBusyAndTheLoadOfOthersIsTheErrorOfACore) {
  EXPECT_DOUBLE_EQ(busy_cores({{"cpu"}, {"cpu", .5}, {"H200"}}, 4), 1.5 / 4);
  EXPECT_DOUBLE_EQ(busy_cores(std::vector<ForecastDevice>(8, {"cpu"}), 4), 1);
  EXPECT_DOUBLE_EQ(load_error({.recipe = "", .machine = "", .made = "", .cores = 16, .load = 8, .trials = {}}), .5);
}

TEST(Rows, OneMoreDeviceMustBringTwoPercentAndPastForecastsCount) {
  std::vector<PlanRow> rows(3);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].precision = "fp32";
    rows[i].used = std::vector<int>(i + 1);
  }
  rows[0].samples_per_s = 100, rows[1].samples_per_s = 101.9, rows[2].samples_per_s = 102.1;
  EXPECT_EQ(best_row(rows, 0, "fp32"), &rows[2]);
  rows.pop_back();
  EXPECT_EQ(best_row(rows, 0, "fp32"), &rows[0]);
  const StepModel steps(SampleMachine().calibration(), "fp32");
  PlanQuestion q{.job = {}, .devices = {{{"cpu"}, "cpu:0"}}, .counts = {}, .batches = {192}};
  const double own = plan_rows(q, steps, nullptr, "fp32")[0].error;
  q.past_error = own + .5;
  EXPECT_DOUBLE_EQ(plan_rows(q, steps, nullptr, "fp32")[0].error, own + .5);
}

// fleet/snapshot_pace.h has the rule.
TEST(Pauses, TheFirstSnapshotOfALargeStateWaitsUntilItIsWorthIt) {
  PauseQuestion q = question();
  q.bytes = 545e6;  // guessed at 0.545 s: after 109 s
  q.snapshot = .25;
  EXPECT_EQ(pauses_of(q).snapshots, 0);
  q.training = 120;
  EXPECT_EQ(pauses_of(q).snapshots, 0) << "so near the end it is left out";
  q.training = 200;
  EXPECT_EQ(pauses_of(q).snapshots, 2);
}

TEST(Pauses, CheckpointsCountAsAskedFor) {
  PauseQuestion q = question();
  EXPECT_EQ(pauses_of(q).checkpoints, 0) << "never";
  q.rule = {.automatic = true};
  EXPECT_EQ(pauses_of(q).checkpoints, 2) << "the writer takes no more than a hundredth of a core";
  EXPECT_NEAR(pauses_of(q).checkpoint_seconds, 1, 1e-9) << "one second each of writing, half of it a worker's";
  q.busy_cores = 0;
  EXPECT_EQ(pauses_of(q).checkpoint_seconds, 0) << "there is a core for it";
  q.rule = {.automatic = false, .seconds = 50};
  EXPECT_EQ(pauses_of(q).checkpoints, 2);
  q.bytes = 545e6;
  q.snapshot = .25;
  EXPECT_EQ(pauses_of(q).snapshots, 2) << "one for each, though by themselves they would come later";
  EXPECT_GT(snapshot_seconds(pauses_of(q), 100), 109) << "so the memory of two is filled";
}

TEST(Pauses, WhoSavesEveryStepWaitsForTheDisk) {
  PauseQuestion q = question();
  q.rule = {.automatic = false, .steps = 1};
  const Pauses forecast = pauses_of(q);
  EXPECT_EQ(forecast.checkpoints, 999);
  EXPECT_GE(forecast.snapshots, 999);
  EXPECT_NEAR(forecast.checkpoint_seconds, 899, 1) << "999 s of writing in 100 s of training";
}

TEST(Pauses, AreAPartOfARowsTime) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  for (Trial& trial : c.trials) trial.snapshots = 3, trial.snapshot_seconds = .002;
  PlanQuestion q;
  q.job = c.trials[0].shape;
  q.job.total_steps = 100000;
  q.devices = {{{"cpu", 1}, "cpu:0"}};
  q.batches = {192};
  q.checkpoints = {.automatic = false};
  const StepModel steps(c, "fp32");
  const PlanRow row = plan_rows(q, steps, nullptr, "fp32")[0];
  EXPECT_GT(row.pauses.snapshot_seconds, .3);
  EXPECT_NEAR(row.seconds, row.start_seconds + 1e5 * row.step.seconds + row.pauses.snapshot_seconds + row.end_seconds,
              1e-9);
  q.job.shard_bytes *= 50;  // each of them is larger than in the trial
  EXPECT_GT(plan_rows(q, steps, nullptr, "fp32")[0].pauses.snapshot_seconds, 2 * row.pauses.snapshot_seconds);
}

}  // namespace
}  // namespace tandem
