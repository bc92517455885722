// How long a move may take, by clocks of every kind.
#include "apps/chess/play/time_budget.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem::chess {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOverhead{50};

int64_t white(const GoLimits& limits) {
  const auto time = time_for_move(limits, Side::kWhite, kOverhead);
  return time ? time->count() : -1;
}

TEST(TimeBudget, IsAShareOfTheClockOfTheSideThatMoves) {
  EXPECT_EQ(white({.white_time = 60'050, .black_time = 10}), 2000);
  EXPECT_EQ(white({.white_time = 60'050, .white_increment = 1000, .black_increment = 9}), 2750);
  EXPECT_EQ(time_for_move({.white_time = 1, .black_time = 60'050}, Side::kBlack, kOverhead), milliseconds(2000));
  EXPECT_EQ(white({.white_time = 60'050, .moves_to_go = 10}), 6000);
}

TEST(TimeBudget, LeavesSomethingOnTheClock) {
  EXPECT_EQ(white({.white_time = 1050, .moves_to_go = 1}), 800);
  EXPECT_EQ(white({.white_time = 1050, .white_increment = 100'000}), 800) << "an increment comes after the move";
  for (const int64_t left : {0, 1, 20, 50, 51, 60, 100})
    EXPECT_LE(white({.white_time = left, .white_increment = 1000}), std::max<int64_t>(left - 50, 1)) << left;
}

TEST(TimeBudget, OfLongGamesNeverRunsOut) {
  for (const int64_t increment : {0, 10, 100, 1000}) {
    int64_t clock = 5000 + increment;
    for (int move = 0; move < (increment == 0 ? 100 : 300); ++move) {
      clock += increment - white({.white_time = clock, .white_increment = increment}) - 2;  // the way costs 2 ms
      ASSERT_GT(clock, 0) << "move " << move << ", increment " << increment;
    }
  }
}

TEST(TimeBudget, OddNumbersAreNoTrouble) {
  EXPECT_EQ(white({}), -1) << "no clock, no budget";
  EXPECT_EQ(white({.black_time = 1000}), -1) << "another's clock";
  EXPECT_EQ(white({.white_time = -5000, .white_increment = -3}), 1);
  EXPECT_GT(white({.white_time = std::numeric_limits<int64_t>::max(),
                   .white_increment = std::numeric_limits<int64_t>::max(),
                   .moves_to_go = std::numeric_limits<int64_t>::min()}),
            1'000'000'000);
  EXPECT_EQ(white({.white_time = std::numeric_limits<int64_t>::min()}), 1);
  EXPECT_EQ(white({.white_time = 60'050, .moves_to_go = 0}), 48'000);
}

TEST(TimeBudget, MoveTimeIsTakenLessTheOverhead) {
  EXPECT_EQ(white({.move_time = 1000}), 950);
  EXPECT_EQ(white({.move_time = 10}), 1);
  EXPECT_EQ(white({.white_time = 60'050, .move_time = 1000}), 950) << "the shorter of both";
}

}  // namespace
}  // namespace tandem::chess
