#include "engine/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(Schedule, WarmUpRisesLinearlyToOne) {
  ScheduleSettings s;
  s.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(schedule_factor(s, 0), 0.25);
  EXPECT_DOUBLE_EQ(schedule_factor(s, 3), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(s, 1000), 1);
}

TEST(Schedule, CosineFallsFromOneToItsFloorAndStaysThere) {
  ScheduleSettings s;
  s.kind = "cosine";
  s.warmup_steps = 10;
  s.total_steps = 110;
  s.min_factor = 0.1;
  EXPECT_DOUBLE_EQ(schedule_factor(s, 10), 1);
  EXPECT_NEAR(schedule_factor(s, 60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(schedule_factor(s, 110), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(s, 5000), 0.1);
  for (int u = 11; u < 110; ++u) EXPECT_LT(schedule_factor(s, u), schedule_factor(s, u - 1));
}

TEST(Schedule, WarmRestartsBeginAnewEachCycleTwiceAsLong) {
  ScheduleSettings s;
  s.kind = "cosine_restarts";
  s.restart_steps = 100;
  s.restart_factor = 2;
  for (int start : {0, 100, 300, 700}) EXPECT_DOUBLE_EQ(schedule_factor(s, start), 1);
  EXPECT_NEAR(schedule_factor(s, 50), 0.5, 1e-12);
  EXPECT_NEAR(schedule_factor(s, 200), 0.5, 1e-12);
  EXPECT_LT(schedule_factor(s, 299), 0.001);
}

TEST(Schedule, TheRateGrowsWithTheGlobalBatchAsAsked) {
  ScheduleSettings s;
  s.base_batch = 256;
  EXPECT_DOUBLE_EQ(batch_factor(s, 1024), 1);
  s.batch_scaling = "linear";
  EXPECT_DOUBLE_EQ(batch_factor(s, 1024), 4);
  s.batch_scaling = "sqrt";
  EXPECT_DOUBLE_EQ(batch_factor(s, 1024), 2);
}

}  // namespace
}  // namespace tandem
