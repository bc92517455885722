#include "jobs/estimate.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

DeviceSpec card(const std::string& name, int index) {
  return {.kind = DeviceSpec::Kind::kCuda, .index = index, .card = {"uuid", name}};
}

std::vector<SetJob> two_jobs() {
  return {{.name = "light", .steps = 100, .shards = 8, .flops = 1e9},
          {.name = "heavy", .steps = 100, .shards = 8, .flops = 3e9}};
}

TEST(Estimate, AJobThatWasNotMeasuredIsComparedByItsArithmetic) {
  Estimate estimate({{.index = 0}, {.index = 1}}, two_jobs(), 0);
  EXPECT_FALSE(estimate.is_measured());
  estimate.measured(0, {0}, 50);
  EXPECT_DOUBLE_EQ(estimate.step_seconds(0), 1 / 50.0);
  EXPECT_DOUBLE_EQ(estimate.step_seconds(1), 3 / 50.0);
}

TEST(Estimate, ASlowedSlotKeepsItsShareAndTheJobItsOwnCost) {
  Estimate estimate({{.index = 0}, {.index = 1, .speed = .5}}, two_jobs(), 0);
  estimate.measured(0, {1}, 25);
  EXPECT_EQ(estimate.speeds(), (std::vector<double>{1, .5}));
  EXPECT_DOUBLE_EQ(estimate.step_seconds(0), 1 / 50.0) << "25 steps a second at half speed are 50 at full";
}

TEST(Estimate, ACardIsAsFastAsItWasMeasuredAndOneOfItsModelToo) {
  Estimate estimate({card("3060", 0), card("3070", 1), card("3070", 2)}, two_jobs(), 0);
  EXPECT_EQ(estimate.speeds(), (std::vector<double>{1, 1, 1})) << "nothing is known yet";
  estimate.measured(0, {0}, 80);
  estimate.measured(1, {1}, 100 / 3.0);
  EXPECT_NEAR(estimate.speeds()[0], .8, 1e-9);
  EXPECT_NEAR(estimate.speeds()[2], 1, 1e-9);
  EXPECT_NEAR(estimate.step_seconds(0), .01, 1e-9) << "on the faster card";
}

TEST(Estimate, WhatAnEarlierRunMeasuredServesUntilThisOneHas) {
  Estimate estimate({{.index = 0}}, two_jobs(), 0);
  estimate.assume("cpu", 2e9);
  EXPECT_DOUBLE_EQ(estimate.step_seconds(1), 1.5);
  estimate.measured(1, {0}, 1);
  EXPECT_DOUBLE_EQ(estimate.step_seconds(1), 1);
  EXPECT_DOUBLE_EQ(estimate.models().at("cpu"), 3e9);
}

}  // namespace
}  // namespace tandem
