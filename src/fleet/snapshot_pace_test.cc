#include "fleet/snapshot_pace.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr double kLong = 1e300;
constexpr uint64_t kSmall = 1'000'000, kReplay = 545'000'000;

double first_interval(uint64_t bytes) { return snapshot_interval(guessed_snapshot_seconds(bytes)); }

// Plays a run of so many seconds: how many snapshots were made before its end.
int made_in(double seconds, uint64_t bytes, double real_cost) {
  int made = 0;
  double last = 0, cost = guessed_snapshot_seconds(bytes);
  for (double now = 0; now < seconds; now += 0.05) {
    if (!worth_it(now - last, seconds - now, snapshot_interval(cost), kSnapshotSeconds)) continue;
    ++made;
    last = now;
    cost = real_cost;
  }
  return made;
}

TEST(SnapshotPace, ASmallStateIsSavedAfterAMomentAndToTheEnd) {
  EXPECT_DOUBLE_EQ(first_interval(kSmall), kSnapshotSeconds);
  EXPECT_FALSE(worth_it(1.4, kLong, first_interval(kSmall), kSnapshotSeconds));
  EXPECT_TRUE(worth_it(1.5, kLong, first_interval(kSmall), kSnapshotSeconds));
  EXPECT_TRUE(worth_it(1.5, 0.01, first_interval(kSmall), kSnapshotSeconds)) << "it costs next to nothing";
  EXPECT_DOUBLE_EQ(checkpoint_interval(guessed_snapshot_seconds(kSmall), 0, 0), kCheckpointSeconds);
}

TEST(SnapshotPace, TheFirstOneOfALargeStateWaitsUntilItsCostIsASmallShareOfTheTime) {
  EXPECT_DOUBLE_EQ(first_interval(kReplay), 109);
  EXPECT_DOUBLE_EQ(checkpoint_interval(guessed_snapshot_seconds(kReplay), 0, 0), 109);
  EXPECT_FALSE(worth_it(108, kLong, first_interval(kReplay), kSnapshotSeconds));
  EXPECT_TRUE(worth_it(109, kLong, first_interval(kReplay), kSnapshotSeconds));
}

TEST(SnapshotPace, AllOfThemTogetherCostNoMoreThanTheirShare) {
  for (const double cost : {0.001, 0.02, 0.3, 0.545}) {
    const double seconds = 20'000;
    EXPECT_LE(made_in(seconds, kReplay, cost) * cost, kSnapshotShare * seconds) << cost;
    EXPECT_GT(made_in(seconds, kReplay, cost) * cost, 0.9 * std::min(kSnapshotShare, cost / kSnapshotSeconds) * seconds)
        << "and they are made: " << cost;
  }
}

TEST(SnapshotPace, OneThatIsDearIsNotMadeJustBeforeTheEnd) {
  EXPECT_FALSE(worth_it(109, 20, 109, kSnapshotSeconds)) << "the run saves itself in 20 s";
  EXPECT_TRUE(worth_it(400, 20, 109, kSnapshotSeconds)) << "but much is at risk now";
  EXPECT_EQ(made_in(100, kReplay, 0.5), 0);
  EXPECT_EQ(made_in(150, kReplay, 0.5), 0);
  EXPECT_EQ(made_in(170, kReplay, 0.5), 1);
}

TEST(SnapshotPace, EachDeathHalvesTheIntervalSoThatARunGetsPastDeathsThatComeSooner) {
  EXPECT_DOUBLE_EQ(snapshot_interval(0.545, 1), 54.5);
  EXPECT_DOUBLE_EQ(snapshot_interval(0.545, 2), 27.25);
  EXPECT_DOUBLE_EQ(snapshot_interval(0.545, 100), kSnapshotSeconds);
  EXPECT_DOUBLE_EQ(snapshot_interval(0.001, 3), kSnapshotSeconds);
}

TEST(SnapshotPace, OneSlowCopyDoesNotSetThePace) {
  SnapshotCost cost(0.5);
  EXPECT_DOUBLE_EQ(cost.seconds(), 0.5);
  cost.took(9);
  EXPECT_DOUBLE_EQ(cost.seconds(), 0.5);
  for (const double seconds : {0.2, 7.0, 8.0}) cost.took(seconds);
  EXPECT_DOUBLE_EQ(cost.seconds(), 0.2);
  cost.took(0.3);
  EXPECT_DOUBLE_EQ(cost.seconds(), 0.3) << "of the last three";
}

TEST(SnapshotPace, ASlowDiskIsWrittenToForATenthOfTheTimeAndTheWriterTakesAHundredthOfACore) {
  EXPECT_DOUBLE_EQ(checkpoint_interval(0.01, 30, 0.01), 300);
  EXPECT_DOUBLE_EQ(checkpoint_interval(0.5, 3, 0.01), 100);
  EXPECT_DOUBLE_EQ(checkpoint_interval(0.1, 1, 0.7), 70);
}

}  // namespace
}  // namespace tandem
