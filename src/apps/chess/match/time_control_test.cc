#include "apps/chess/match/time_control.h"

#include <gtest/gtest.h>

#include "apps/chess/match/move_times.h"

namespace tandem::chess {
namespace {

using std::chrono::milliseconds;

TEST(TimeControls, AreReadAndWrittenAsPgnHasThem) {
  EXPECT_EQ(read_time_control("60+0.6").time, milliseconds(60'000));
  EXPECT_EQ(read_time_control("60+0.6").increment, milliseconds(600));
  EXPECT_EQ(read_time_control("40/300+2").moves, 40);
  for (const char* const text : {"60+0.6", "40/300", "40/300+2", "0.5", "86400"})
    EXPECT_EQ(read_time_control(text).text(), text);
  EXPECT_EQ(read_time_control("60+0").text(), "60");
  for (const char* const bad : {"",      "0",      "-1",       "60+",   "+1",  "60+-1",   "/60", "0/60",
                                "40/",   "4.5/60", "1e3",      "nan",   "inf", "60+0.6s", "60 ", "99999999999999999999",
                                "86401", "0x10",   "40/60/60", "60+1+1"})
    EXPECT_THROW(read_time_control(bad), ConfigError) << bad;
}

TEST(GameClock, RunsForTheSideThatMovesAndGetsItsIncrementAfterwards) {
  GameClocks clocks({.time = milliseconds(1000), .increment = milliseconds(100)});
  EXPECT_TRUE(clocks.press(Side::kWhite, milliseconds(400)));
  EXPECT_EQ(clocks.left(Side::kBlack).white, milliseconds(700));
  EXPECT_EQ(clocks.left(Side::kBlack).black, milliseconds(1000));
  EXPECT_EQ(clocks.left(Side::kBlack).black_increment, milliseconds(100));
  EXPECT_EQ(clocks.left(Side::kBlack).moves_to_go, std::nullopt);
}

TEST(GameClock, FallsBeyondTheMarginAndNotWithinIt) {
  GameClocks clocks({.time = milliseconds(1000), .increment = milliseconds(100)});
  EXPECT_TRUE(clocks.press(Side::kBlack, milliseconds(1000) + kFlagMargin));
  EXPECT_EQ(clocks.left(Side::kBlack).black, milliseconds(100)) << "what was too much is not carried on";
  EXPECT_FALSE(clocks.press(Side::kBlack, milliseconds(101) + kFlagMargin));
}

TEST(GameClock, HasItsTimeAgainAfterSoManyMoves) {
  GameClocks clocks({.time = milliseconds(1000), .moves = 2});
  EXPECT_EQ(clocks.left(Side::kWhite).moves_to_go, 2);
  clocks.press(Side::kWhite, milliseconds(300));
  EXPECT_EQ(clocks.left(Side::kWhite).moves_to_go, 1);
  EXPECT_EQ(clocks.left(Side::kBlack).moves_to_go, 2);
  clocks.press(Side::kWhite, milliseconds(300));
  EXPECT_EQ(clocks.left(Side::kWhite).white, milliseconds(1400));
  EXPECT_EQ(clocks.left(Side::kWhite).moves_to_go, 2);
}

TEST(MoveTimes, CountWhatIsBeyondTheMoveTimeAFifthAnd50Ms) {
  MoveTimes times;
  times.add(milliseconds(170), milliseconds(100));
  EXPECT_EQ(times.overruns, 0);
  times.add(milliseconds(171), milliseconds(100));
  times.add(milliseconds(559), std::nullopt);  // it had another limit
  EXPECT_EQ(times.overruns, 1);
  MoveTimes all;
  all.add(times);
  all.add(MoveTimes());
  EXPECT_EQ(all.moves, 3);
  EXPECT_EQ(all.overruns, 1);
  EXPECT_DOUBLE_EQ(all.mean_ms(), 300);
  EXPECT_DOUBLE_EQ(all.largest_ms(), 559);
  EXPECT_DOUBLE_EQ(MoveTimes().mean_ms(), 0);
}

}  // namespace
}  // namespace tandem::chess
