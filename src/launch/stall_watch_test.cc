#include "launch/stall_watch.h"

#include <gtest/gtest.h>

#include "launch/worker_handle.h"

namespace tandem {
namespace {

WorkerFacts at(int rank, uint64_t beats, Stage stage, bool stopped = false) {
  return {.rank = rank, .beats = beats, .stage = stage, .phase = 0, .stopped = stopped};
}

TEST(StallWatch, AComputingWorkerWithoutProgressIsFrozenAfterTheLimitAndNotBefore) {
  StallWatch watch;
  watch.phase_took(0, 0.01);
  EXPECT_TRUE(watch.frozen(0, {at(0, 5, Stage::kComputing), at(1, 7, Stage::kCombining)}).empty());
  EXPECT_TRUE(watch.frozen(14.9, {at(0, 5, Stage::kComputing), at(1, 7, Stage::kCombining)}).empty());
  EXPECT_EQ(watch.frozen(15, {at(0, 5, Stage::kComputing), at(1, 7, Stage::kCombining)}), std::vector<int>{0})
      << "rank 1 only waits for it";
}

TEST(StallWatch, ProgressOfAnyKindStartsTheClockAnew) {
  StallWatch watch;
  watch.phase_took(0, 0.01);
  for (int second = 0; second < 100; ++second)
    EXPECT_TRUE(watch.frozen(second, {at(0, static_cast<uint64_t>(second / 10), Stage::kComputing)}).empty());
}

TEST(StallWatch, LongPhasesHaveTwentyTimesTheirMedian) {
  StallWatch watch;
  for (const double seconds : {2.0, 2.0, 90.0}) watch.phase_took(0, seconds);
  EXPECT_DOUBLE_EQ(watch.limit_of(0), 40);
  watch.frozen(0, {at(0, 1, Stage::kComputing)});
  EXPECT_TRUE(watch.frozen(39, {at(0, 1, Stage::kComputing)}).empty());
  EXPECT_FALSE(watch.frozen(40, {at(0, 1, Stage::kComputing)}).empty());
}

TEST(StallWatch, AStoppedProcessIsFrozenWhereverItStands) {
  StallWatch watch;
  watch.phase_took(0, 0.01);
  const std::vector<WorkerFacts> facts = {at(0, 1, Stage::kCombining, true), at(1, 1, Stage::kCombining)};
  watch.frozen(0, facts);
  EXPECT_EQ(watch.frozen(15, facts), std::vector<int>{0});
}

TEST(StallWatch, AFirstPhaseMayBeLong) {
  StallWatch watch;
  watch.frozen(0, {at(0, 1, Stage::kComputing)});
  EXPECT_TRUE(watch.frozen(200, {at(0, 1, Stage::kComputing)}).empty());
  EXPECT_FALSE(watch.frozen(300, {at(0, 1, Stage::kComputing)}).empty());
}

TEST(StallWatch, WhereAllWaitAndNobodyIsBehindOneIsTakenOut) {
  StallWatch watch;
  watch.phase_took(0, 0.01);
  const std::vector<WorkerFacts> facts = {at(0, 1, Stage::kCombining), at(1, 1, Stage::kCombining)};
  watch.frozen(0, facts);
  EXPECT_EQ(watch.frozen(15, facts).size(), 1u);
}

TEST(StallWatch, TellsHowLongAWorkerHasReallyBeenQuiet) {
  StallWatch watch(2);
  const WorkerFacts stopped{.rank = 1, .beats = 4, .stage = Stage::kStarting, .stopped = true};
  watch.frozen(100, {stopped});
  EXPECT_EQ(watch.frozen(102.5, {stopped}), std::vector<int>{1});
  EXPECT_EQ(watch.quiet_seconds(1, 102.5), 2.5) << "not the limit of a phase that was never seen";
  EXPECT_EQ(watch.quiet_seconds(7, 102.5), 0);
}

TEST(StallWatch, AfterThisProcessWasStoppedEverybodyStartsAnew) {
  StallWatch watch;
  watch.phase_took(0, 0.01);
  watch.frozen(0, {at(0, 1, Stage::kComputing)});
  watch.reset();
  EXPECT_TRUE(watch.frozen(1000, {at(0, 1, Stage::kComputing)}).empty());
}

TEST(PhaseNumber, FollowsTheNameWhereAStepLeavesPhasesOut) {
  const std::vector<std::string> phases{"collect", "learn", "validate validation"};
  EXPECT_EQ(phase_number("learn", phases, 2), 1);  // collect was not due
  EXPECT_EQ(phase_number("collect", phases, 2), 0);
  EXPECT_EQ(phase_number("step", phases, 2), 1);  // a fused step
  EXPECT_EQ(phase_number("validate", phases, 2), 2);
}

}  // namespace
}  // namespace tandem
