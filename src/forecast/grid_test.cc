#include "forecast/grid.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "forecast/step_model.h"
#include "forecast/trial_sample.h"

namespace tandem {
namespace {

std::vector<std::pair<int, int64_t>> places(const std::vector<GridCell>& cells, bool essential_only = false) {
  std::vector<std::pair<int, int64_t>> out;
  for (const GridCell& cell : cells)
    if (cell.essential || !essential_only) out.emplace_back(cell.workers, cell.batch);
  return out;
}

TEST(CalibrationGrid, HasOneTwoAndTheMostWorkersAtTheSmallestAndTheLargestBatch) {
  const auto cells = calibration_grid({.most = 4, .batches = {192, 96, 384}, .seconds = 10});
  EXPECT_EQ(places(cells),
            (std::vector<std::pair<int, int64_t>>{{1, 192}, {1, 96}, {1, 384}, {2, 96}, {2, 384}, {4, 96}, {4, 384}}))
      << "the main one first, and nothing else where time is short";
}

TEST(CalibrationGrid, AddsTheMiddleWhereThereIsTime) {
  const auto cells = calibration_grid({.most = 4, .batches = {192, 96, 384}, .seconds = 1000});
  EXPECT_TRUE(std::ranges::any_of(cells, [](const GridCell& cell) { return cell.workers == 3 && cell.batch == 192; }));
  EXPECT_EQ(places(cells, true).size(), 7u);
}

TEST(CalibrationGrid, NeverAsksForMoreWorkersThanThereAreNorTwiceForOneCell) {
  EXPECT_EQ(places(calibration_grid({.most = 1, .batches = {64}, .seconds = 1000})),
            (std::vector<std::pair<int, int64_t>>{{1, 64}}));
  EXPECT_EQ(places(calibration_grid({.most = 2, .batches = {48, 96}, .seconds = 8})),
            (std::vector<std::pair<int, int64_t>>{{1, 48}, {1, 96}, {2, 48}, {2, 96}}));
}

TEST(CalibrationGrid, ABudgetThatAllowsACellAllowsItsTime) {
  for (const double seconds : {30.0, 60.0, 120.0}) {
    const auto cells = calibration_grid({.most = 8, .batches = {256, 128, 512, 1024}, .seconds = seconds, .cores = 8});
    double needed = 0;
    bool more = false;
    for (const GridCell& cell : cells) {
      needed += start_guess(cell.workers, 2.5, 8) + 2.5;
      more = more || !cell.essential;
    }
    EXPECT_TRUE(!more || needed <= seconds) << seconds;
  }
}

TEST(Stretch, PassesThroughWhatWasMeasuredAndLiesBetween) {
  Stretch stretch;
  EXPECT_EQ(stretch.at(4, 100), 1);
  stretch.add(2, 100, 1.1);
  stretch.add(2, 300, 1.3);
  stretch.add(4, 100, 1.5);
  stretch.add(4, 300, 1.7);
  EXPECT_EQ(stretch.at(1, 100), 1);
  EXPECT_NEAR(stretch.at(2, 100), 1.1, 1e-12);
  EXPECT_NEAR(stretch.at(4, 300), 1.7, 1e-12);
  EXPECT_NEAR(stretch.at(2, 200), 1.2, 1e-12);
  EXPECT_NEAR(stretch.at(4, 50), 1.5, 1e-12) << "level beyond";
  EXPECT_NEAR(stretch.at(9, 100), 1.5, 1e-12);
  EXPECT_GT(stretch.at(3, 200), 1.2);
  EXPECT_LT(stretch.at(3, 200), 1.6);
  EXPECT_FALSE(stretch.measured(3));
}

TEST(Stretch, OneBatchOfACountMovesTheShapeOfItsNeighbours) {
  Stretch stretch;
  for (const int workers : {2, 4}) stretch.add(workers, 100, 1), stretch.add(workers, 300, 2);
  stretch.add(3, 200, 3);
  EXPECT_NEAR(stretch.at(3, 200), 3, 1e-12);
  EXPECT_NEAR(stretch.at(3, 300), 4, 1e-12);
  EXPECT_NEAR(stretch.at(3, 100), 2, 1e-12);
}

// A machine whose four slots get into each other's way in a manner that two never showed.
TEST(StepModel, FourWorkersAreForecastAsMeasuredAndThreeLieBetween) {
  SampleMachine machine;
  machine.cores = 8;
  Calibration c = machine.calibration();
  const std::vector<TrialDevice> four(4);
  for (const int64_t batch : {192, 384}) {
    Trial trial = machine.trial(batch, four, {6, 6, 6, 6});
    trial.step_seconds *= 1.6;
    c.trials.push_back(trial);
  }
  const StepModel model(c, "fp32");
  const auto seconds = [&](int workers, int64_t batch) {
    return model.step(batch, std::vector<ForecastDevice>(static_cast<size_t>(workers))).seconds;
  };
  EXPECT_NEAR(seconds(4, 192), c.trials[3].step_seconds, 1e-12);
  EXPECT_NEAR(seconds(4, 384), c.trials[4].step_seconds, 1e-12);
  EXPECT_NEAR(seconds(2, 192), c.trials[2].step_seconds, 1e-12);
  const StepModel without(machine.calibration(), "fp32");
  const double free = without.step(192, std::vector<ForecastDevice>(3)).seconds;
  EXPECT_GT(seconds(3, 192), 1.1 * free);
  EXPECT_LT(seconds(3, 192), 1.6 * free);
  const StepForecast step = model.step(192, std::vector<ForecastDevice>(4));
  EXPECT_NEAR(step.compute + step.fixed + step.combine, step.seconds, 1e-12) << "its parts are all of it";
  EXPECT_LT(step.error, model.step(192, std::vector<ForecastDevice>(8)).error) << "four were tried, eight were not";
}

TEST(Calibration, TrialsOfOtherSlotsSayNothingOfThese) {
  SampleMachine machine;
  Calibration c = machine.calibration();
  const std::vector<TrialDevice> slow = {{"cpu", .5, 0}, {"cpu", .5, 1}};
  const Calibration plain = c;
  Trial other = machine.trial(192, slow, {12, 12});
  other.step_seconds *= 3;
  c.trials.push_back(other);
  c.trials.push_back(machine.trial(192, {slow[0]}, {24}));
  const std::vector<TrialDevice> two(2);
  EXPECT_EQ(trials_for(c, two).trials.size(), 3u);
  EXPECT_EQ(trials_for(c, {slow[0]}).trials.size(), 2u);
  EXPECT_NEAR(StepModel(trials_for(c, two), "fp32").step(192, {{"cpu"}, {"cpu"}}).seconds, plain.trials[2].step_seconds,
              1e-12);
  EXPECT_EQ(trials_for(c, {{"cpu", .25, 3}}).trials.size(), 5u) << "better than nothing";
}

}  // namespace
}  // namespace tandem
