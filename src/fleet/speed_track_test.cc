#include "fleet/speed_track.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "fleet/coordinator.h"

namespace tandem {
namespace {

constexpr int kStepsPerReading = 4;  // as the launcher's speedometer has it

// Equal workers whose readings jump by up to 15 % either way.
struct Fleet {
  Fleet(int workers, int shards, unsigned seed) : c({.shards = shards}), count(workers), chance(seed) {
    for (int rank = 0; rank < count; ++rank) c.expect(rank, 1);
    for (int rank = 0; rank < count; ++rank) c.arrived(rank);
    for (int rank = 0; rank < count; ++rank) c.adopted(rank, c.current().generation);
  }
  // After how many steps shards are to be moved; -1: not within these. Rank 1 has `speed`, the others 100.
  int steps_to_a_move(int steps, double speed) {
    std::uniform_real_distribution<double> jump(0.85, 1.15);
    for (int step = kStepsPerReading; step <= steps; step += kStepsPerReading) {
      std::map<int, double> speeds;
      for (int rank = 0; rank < count; ++rank) speeds[rank] = (rank == 1 ? speed : 100) * jump(chance);
      if (!c.measured(speeds, 0.12, 0.05).empty()) return step;
    }
    return -1;
  }
  Coordinator c;
  int count;
  std::mt19937 chance;
};

TEST(SpeedTrack, JumpingReadingsOfEqualWorkersMoveNothingAndARealChangeMovesSoon) {
  int moved = 0, late = 0, fleets = 0;
  for (const auto& [workers, shards] : {std::pair{2, 24}, {3, 24}, {4, 24}, {4, 64}, {8, 256}})
    for (unsigned seed = 0; seed < (shards > 24 ? 20 : 100); ++seed, ++fleets) {
      Fleet fleet(workers, shards, seed);
      if (fleet.steps_to_a_move(200, 100) >= 0) {
        ++moved;
        continue;
      }
      const int after = fleet.steps_to_a_move(20, 50);
      if (after < 0) ++late;
    }
  EXPECT_LE(moved, fleets / 100);  // by chance
  EXPECT_LE(late, fleets / 100);
}

// What a busy machine does to equal workers: now and then another program has a core for most of a reading.
TEST(SpeedTrack, MomentsWithoutACoreMoveNothing) {
  int moved = 0, fleets = 0;
  for (const auto& [workers, shards] : {std::pair{2, 24}, {3, 24}, {4, 64}})
    for (unsigned seed = 0; seed < 50; ++seed, ++fleets) {
      Fleet fleet(workers, shards, seed);
      std::uniform_real_distribution<double> chance(0, 1);
      bool wanted = false;
      for (int reading = 0; reading < 50 && !wanted; ++reading) {
        std::map<int, double> speeds;
        for (int rank = 0; rank < workers; ++rank)
          speeds[rank] = (95 + 10 * chance(fleet.chance)) * (chance(fleet.chance) < 0.03 ? 0.2 : 1);
        wanted = !fleet.c.measured(speeds, 0.12, 0.05).empty();
      }
      moved += wanted;
    }
  EXPECT_LE(moved, fleets / 20);  // three such moments in a row look like a change
}

TEST(SpeedTrack, AFirstReadingThatIsFarOffIsForgotten) {
  for (const auto& first : {std::vector<double>{5, 100, 100}, {100, 5, 100}, {100, 100, 5}}) {
    SpeedTrack track;
    for (const double reading : first) track.add(reading);
    EXPECT_DOUBLE_EQ(track.value(), 100);
  }
}

TEST(SpeedTrack, QuietReadingsAreSureAtOnceAndASingleJumpIsNoNoise) {
  SpeedTrack track;
  EXPECT_FALSE(track.known());
  for (int i = 0; i < 10; ++i) track.add(100);
  EXPECT_DOUBLE_EQ(track.value(), 100);
  EXPECT_DOUBLE_EQ(track.uncertainty(), 0);
  for (int i = 0; i < 2; ++i) {
    track.add(50);
    EXPECT_DOUBLE_EQ(track.value(), 100) << "set aside";
  }
  track.add(50);
  EXPECT_DOUBLE_EQ(track.value(), 50) << "it is another machine now";
  EXPECT_DOUBLE_EQ(track.uncertainty(), 0);
}

TEST(SpeedTrack, TheScatterOfTheSmoothedValueIsWhatItSays) {
  std::mt19937 chance(7);
  std::normal_distribution<double> reading(100, 5);
  double squares = 0, claimed = 0;
  constexpr int kTracks = 2000;
  for (int i = 0; i < kTracks; ++i) {
    SpeedTrack track;
    for (int n = 0; n < 30; ++n) track.add(reading(chance));
    squares += (track.value() - 100) * (track.value() - 100);
    claimed += track.uncertainty() * 100;
  }
  EXPECT_NEAR(claimed / kTracks, std::sqrt(squares / kTracks), 0.25);
}

}  // namespace
}  // namespace tandem
