#include "jobs/estimate.h"

#include <gtest/gtest.h>

#include "jobs/schedule.h"

namespace tandem {
namespace {

DeviceSpec gpu(const std::string& name, int index) {
  return {.kind = DeviceSpec::Kind::kCuda, .index = index, .gpu = {"uuid", name}};
}

std::vector<SetJob> two_jobs() {
  return {{.name = "light", .steps = 100, .shards = 8, .flops = 1e9},
          {.name = "heavy", .steps = 100, .shards = 8, .flops = 3e9}};
}

TEST(Estimate, AJobThatWasNotMeasuredIsComparedByItsArithmetic) {
  Estimate estimate({{.index = 0}, {.index = 1}}, two_jobs(), 0);
  EXPECT_TRUE(estimate.models().empty());
  estimate.measured(0, {0}, 50);
  EXPECT_NEAR(estimate.step_seconds(0), 1 / 50.0, 1e-9);
  EXPECT_NEAR(estimate.step_seconds(1), 3 / 50.0, 1e-9);
}

TEST(Estimate, ASlowedSlotKeepsItsShareAndTheJobItsOwnCost) {
  Estimate estimate({{.index = 0}, {.index = 1, .speed = .5}}, two_jobs(), 0);
  estimate.measured(0, {1}, 25);
  EXPECT_NEAR(estimate.speeds()[0], 1, 1e-9);
  EXPECT_NEAR(estimate.speeds()[1], .5, 1e-9);
  EXPECT_NEAR(estimate.step_seconds(0), 1 / 50.0, 1e-9) << "25 steps a second at half speed are 50 at full";
}

TEST(Estimate, AGpuIsAsFastAsItWasMeasuredAndOneOfItsModelToo) {
  Estimate estimate({gpu("3060", 0), gpu("3070", 1), gpu("3070", 2)}, two_jobs(), 0);
  EXPECT_EQ(estimate.speeds(), (std::vector<double>{1, 1, 1})) << "nothing is known yet";
  estimate.measured(0, {0}, 80);
  estimate.measured(1, {1}, 100 / 3.0);
  EXPECT_NEAR(estimate.speeds()[0], .8, 1e-9);
  EXPECT_NEAR(estimate.speeds()[2], 1, 1e-9);
  EXPECT_NEAR(estimate.step_seconds(0), .01, 1e-9) << "on the faster GPU";
}

TEST(Estimate, WhatAnEarlierRunMeasuredServesUntilThisOneHas) {
  Estimate estimate({{.index = 0}}, two_jobs(), 0);
  estimate.assume("cpu", 2e9);
  EXPECT_DOUBLE_EQ(estimate.step_seconds(1), 1.5);
  estimate.measured(1, {0}, 1);
  EXPECT_NEAR(estimate.step_seconds(1), 1, 1e-9);
  EXPECT_NEAR(estimate.models().at("cpu"), 3e9, 1);
}

TEST(Estimate, ASlotThatIsSlowerThanItsNameIsToldFromAJobThatIsDearer) {
  std::vector<SetJob> jobs;
  for (int j = 0; j < 6; ++j) jobs.push_back({.name = std::to_string(j), .steps = 100, .shards = 8, .flops = 1e9});
  Estimate estimate({{.index = 0}, {.index = 1, .speed = .5}, {.index = 2, .speed = .5}}, jobs, 0);
  for (const int j : {0, 3}) estimate.measured(j, {0}, 80);
  for (const int j : {1, 4}) estimate.measured(j, {1}, 35);
  estimate.measured(2, {2}, 30);
  EXPECT_NEAR(estimate.speeds()[1], .45, .02) << "35 of 40, twice";
  EXPECT_GT(estimate.speeds()[2], .40) << "30 of 40, once: the slot and the job share it";
  EXPECT_NEAR(estimate.step_seconds(5), 1 / 80.0, .1 / 80.0) << "and one that never ran is not thought to be dear";
}

TEST(Estimate, WhatAgreeingCostsIsLearnedFromThoseThatJoined) {
  Estimate estimate({{.index = 0}, {.index = 1}}, two_jobs(), .03);
  estimate.measured(0, {0}, 50);
  estimate.measured(0, {0, 1}, 70);
  EXPECT_NEAR(estimate.combine_share(), .3, 1e-9) << "70 instead of 100";
  estimate.measured(0, {0, 1}, 90);
  EXPECT_NEAR(estimate.combine_share(), .2, 1e-9) << "half of it is the newest reading";
  EXPECT_NEAR(estimate.step_seconds(0), work_rate(8, {1, 1}, estimate.combine_share()) / 90, 1e-9);
}

}  // namespace
}  // namespace tandem
