#include "forecast/trial_times.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace tandem {
namespace {

TEST(TrialTimes, AStepIsTheMeanForARunIsASumAndStallsArePartOfIt) {
  std::vector<ReportedStep> steps(100, {.010, 192});
  for (size_t i = 20; i < steps.size(); i += 8) steps[i].seconds = .050;  // every eighth one stalls
  const TrialTimes times = times_of(steps, 0);
  EXPECT_EQ(times.steps, 80);
  EXPECT_NEAR(times.step_seconds, .015, 1e-12);
  EXPECT_NEAR(times.samples, 192, 1e-9);
  EXPECT_NEAR(times.deviation, 0, 1e-9) << "each tenth has its stall";
}

TEST(TrialTimes, WhatTheFirstStepsTakeMoreBelongsToTheStart) {
  std::vector<ReportedStep> steps(50, {.010, 1});
  steps[0].seconds = .5;
  const TrialTimes times = times_of(steps, .001);
  EXPECT_NEAR(times.step_seconds, .011, 1e-12) << "with what is done beside it";
  EXPECT_NEAR(times.warm_up, .49, 1e-9);
  double whole = times.warm_up;
  for (size_t i = 0; i < steps.size(); ++i) whole += times.step_seconds;
  double truth = 0;
  for (const ReportedStep& step : steps) truth += step.seconds + .001;
  EXPECT_NEAR(whole, truth, 1e-9) << "start and steps add up to the whole";
}

TEST(TrialTimes, AChangeOnTheWayIsToldAsDeviation) {
  std::vector<ReportedStep> steps(100, {.010, 1});
  for (size_t i = 60; i < steps.size(); ++i) steps[i].seconds = .020;
  EXPECT_GT(times_of(steps, 0).deviation, .08);
}

TEST(TrialTimes, OnAGpuEagerCapturedAndComparedStepsAreNotPartOfTheMean) {
  std::vector<ReportedStep> steps(20, {.1, 128});
  for (size_t i = 0; i < 6; ++i) steps[i].seconds = .4;
  steps[16].seconds = .25;
  const TrialTimes times = times_of(steps, 0, trial_rule(/*on_gpu=*/true));
  EXPECT_NEAR(times.step_seconds, .1, 1e-12);
  EXPECT_EQ(times.steps, 13);
  EXPECT_NEAR(times.warm_up, 6 * .3 + .15, 1e-9) << "they belong to the start";
  EXPECT_GE(trial_rule(true).least, trial_rule(false).least);
}

TEST(TrialTimes, ALongTrialLeavesOutWhatIsComparedEveryFourThousandSteps) {
  std::vector<ReportedStep> steps(13000, {.01, 128});
  for (size_t i = 4096; i < steps.size(); i += 4096) steps[i].seconds = .5;
  EXPECT_NEAR(times_of(steps, 0, trial_rule(/*on_gpu=*/true)).step_seconds, .01, 1e-12);
}

TEST(TrialTimes, APhaseOfEveryNthStepCountsWithAnNthThoughTheTrialSawItOnce) {
  std::vector<ReportedStep> steps(40, {.010, 1, {0}});
  steps[0] = {.810, 1, {.800}};  // collects, and so does the 101st step
  const TrialTimes once = times_of(steps, 0, {}, {100});
  EXPECT_NEAR(once.step_seconds, .018, 1e-12);
  EXPECT_NEAR(once.warm_up + 40 * once.step_seconds, .810 + 39 * .010, 1e-9) << "start and steps add up to the whole";
  steps.resize(400, {.010, 1, {0}});
  for (size_t i = 100; i < 400; i += 100) steps[i] = {.410, 1, {.400}};
  EXPECT_NEAR(times_of(steps, 0, {}, {100}).step_seconds, .014, 1e-12) << "its first run warmed up";
  EXPECT_NEAR(times_of(steps, 0, {}, {100}).deviation, 0, 1e-12);
}

TEST(TrialTimes, TooFewStepsAreNoMeasurement) {
  EXPECT_THROW(times_of({}, 0), Error);
  EXPECT_THROW(times_of({{.1, 1}, {.1, 1}}, 0), Error);
  EXPECT_NO_THROW(times_of({{.1, 1}, {.1, 1}, {.1, 1}}, 0));
}

}  // namespace
}  // namespace tandem
