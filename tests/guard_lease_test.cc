// tests/guard_lease_test.cc -- limits and fans of a fake GPU, borrowed and given back in one process.
#include <gtest/gtest.h>

#include "fake_script.h"
#include "guard/lease.h"

namespace tandem {
namespace {

// A watchdog that does nothing but wait.
Lease::Options options_in(const TempDir& dir) {
  return {.dir = dir.path() / "guard", .watchdog = {"/bin/sh", "-c", "cat", "watchdog"}};
}

TEST(GuardLease, ALimitThatCannotBeReadIsNotChanged) {
  const FakeScript script(R"({"gpus": [{"card": "3070"}], "refuse": {"nvmlDeviceGetPowerManagementLimit": 999}})");
  const TempDir dir;
  const auto nvml = Nvml::open();
  Lease lease(*nvml, options_in(dir));
  const GuardAnswer answer = lease.set_power(nvml->facts(0), 180);
  EXPECT_FALSE(answer.ok);
  EXPECT_FALSE(answer.for_good);
  EXPECT_NE(answer.why.find("can't be read"), std::string::npos) << answer.why;
  EXPECT_EQ(script.log(), "");
  EXPECT_TRUE(read_records(dir.path() / "guard").empty());
}

TEST(GuardLease, AGpuThatDoesNotTellItsFansHasNotGivenThemBack) {
  const FakeScript script(R"({"gpus": [{"card": "3070"}], "refuse": {"nvmlDeviceGetNumFans": 999}})");
  EXPECT_FALSE(Nvml::open()->set_fan_auto(0).ok());
}

TEST(GuardLease, AnOrderThatWasReckonedFromAnotherLimitIsVoid) {
  const FakeScript script(R"({"gpus": [{"card": "3070"}]})");
  const TempDir dir;
  const auto nvml = Nvml::open();
  Lease lease(*nvml, options_in(dir));
  EXPECT_FALSE(lease.set_power(nvml->facts(0), 144, 160).ok);
  EXPECT_EQ(nvml->reading(0).power_limit_w, 220);
  EXPECT_TRUE(lease.set_power(nvml->facts(0), 198, 220).ok);
  EXPECT_TRUE(lease.set_power(nvml->facts(0), 176, 198).ok);
  EXPECT_TRUE(lease.give_all_back().empty());
  EXPECT_EQ(nvml->reading(0).power_limit_w, 220);
}

TEST(GuardLease, WithoutAWatchdogNothingIsChanged) {
  const FakeScript script(R"({"gpus": [{"card": "3070"}]})");
  const TempDir dir;
  const auto nvml = Nvml::open();
  Lease::Options options = options_in(dir);
  options.watchdog = {"/nonexistent/watchdog"};
  Lease lease(*nvml, options);
  EXPECT_FALSE(lease.set_power(nvml->facts(0), 180).ok);
  EXPECT_FALSE(lease.set_fan(nvml->facts(0), 100).ok);
  EXPECT_EQ(script.log(), "");
}

TEST(GuardLease, WhatCouldNotBeGivenBackIsTold) {
  const FakeScript script(R"({"gpus": [{"card": "3070"}], "clock": {"stepped": true},
                              "events": [{"at": 10, "gpu": 0, "lost": true}]})");
  script.set_clock(0);
  const TempDir dir;
  const auto nvml = Nvml::open();
  Lease lease(*nvml, options_in(dir));
  ASSERT_TRUE(lease.set_power(nvml->facts(0), 180).ok);
  script.set_clock(20);
  const auto troubles = lease.give_all_back();
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_NE(troubles[0].find("sudo nvidia-smi -i 0 -pl 220"), std::string::npos) << troubles[0];
  EXPECT_EQ(read_records(dir.path() / "guard").size(), 1u);
}

}  // namespace
}  // namespace tandem
