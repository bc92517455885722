#include "guard/fault_watch.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

GpuFacts watched_gpu() {
  GpuFacts facts;
  facts.name = "NVIDIA GeForce RTX 3070";
  facts.power_default_w = facts.power_limit_w = 220;
  facts.memory_bytes = 8ull << 30;
  facts.slowdown_c = 95;
  return facts;
}

GpuReading well() {
  GpuReading reading;
  reading.temperature_c = 60;
  reading.power_limit_w = 220;
  reading.throttle = std::vector<Throttle>{};
  reading.memory_used_bytes = 1ull << 30;
  reading.ecc_corrected = reading.ecc_uncorrected = 7;  // old ones, before this run
  return reading;
}

// What is reported within so many seconds of this state.
std::vector<GpuNotice> reported(FaultWatch& watch, const GpuFacts& facts, const GpuReading& reading, double seconds,
                                double from = 100) {
  std::vector<GpuNotice> all;
  for (double t = from; t < from + seconds; t += 1)
    for (const GpuNotice& notice : watch.see(t, {facts}, {reading})) all.push_back(notice);
  return all;
}

TEST(FaultWatch, SaysNothingOfAGpuThatIsWell) {
  FaultWatch watch({});
  GpuReading idle = well();
  idle.throttle = {Throttle::kIdle};
  EXPECT_TRUE(reported(watch, watched_gpu(), well(), 100).empty());
  EXPECT_TRUE(reported(watch, watched_gpu(), idle, 100, 300).empty());
}

TEST(FaultWatch, NamesEveryThrottlingWithCauseAndRemedyInTime) {
  for (const Throttle reason : {Throttle::kApplicationClocks, Throttle::kPowerCap, Throttle::kHwSlowdown,
                                Throttle::kSyncBoost, Throttle::kThermalSw, Throttle::kThermalHw, Throttle::kPowerBrake,
                                Throttle::kDisplayClocks, Throttle::kOther}) {
    FaultWatch watch({});
    GpuReading reading = well();
    reading.throttle = {reason};
    const auto notices = reported(watch, watched_gpu(), reading, 30);
    ASSERT_EQ(notices.size(), 1u) << throttle_name(reason);
    EXPECT_EQ(notices[0].id, throttle_name(reason));
    EXPECT_FALSE(notices[0].why.empty());
    EXPECT_FALSE(notices[0].todo.empty());
  }
}

TEST(FaultWatch, APowerCapBelowTheDefaultComesWithTheCommandThatRaisesIt) {
  FaultWatch watch({});
  GpuReading reading = well();
  reading.throttle = {Throttle::kPowerCap};
  reading.power_limit_w = 150;
  const auto notices = reported(watch, watched_gpu(), reading, 30);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].weight, GpuNotice::Weight::kWarning);
  EXPECT_NE(notices[0].todo.find("sudo nvidia-smi -i 0 -pl 220"), std::string::npos) << notices[0].todo;
}

TEST(FaultWatch, ALimitThatTheGuardHoldsLowerIsNoFault) {
  GpuReading reading = well();
  reading.throttle = {Throttle::kPowerCap};
  reading.power_limit_w = 154;
  reading.ecc_uncorrected = 0;
  FaultWatch watch({});
  std::vector<GpuNotice> notices;
  for (double t = 0; t < 60; t += 1)
    for (const GpuNotice& notice : watch.see(t, {watched_gpu()}, {reading}, {{0, 220}})) notices.push_back(notice);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].weight, GpuNotice::Weight::kNote);
  EXPECT_NE(notices[0].why.find("the guard holds its power limit at 154 W"), std::string::npos) << notices[0].why;
  EXPECT_EQ(notices[0].text().find("-pl"), std::string::npos) << notices[0].text();

  const auto now = FaultWatch::at_once({}, watched_gpu(), reading, 220);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].text(), notices[0].text()) << "one look says the same";
}

TEST(FaultWatch, AdvisesAPowerLimitOnlyWhereNoneWasGiven) {
  GpuReading hot = well();
  hot.temperature_c = 98;
  hot.ecc_uncorrected = 0;
  hot.throttle = {Throttle::kThermalSw, Throttle::kThermalHw};
  GuardOptions given;
  given.power = PowerLimit{.share = 0.7};
  const auto advised = [&](const GuardOptions& options, std::optional<double> found_w) {
    int count = 0;
    const auto notices = FaultWatch::at_once(options, watched_gpu(), hot, found_w);
    EXPECT_EQ(notices.size(), 3u);
    for (const GpuNotice& notice : notices) {
      EXPECT_NE(notice.todo.find("more air"), std::string::npos) << notice.todo;
      count += notice.todo.find("--power") != std::string::npos;
    }
    return count;
  };
  EXPECT_EQ(advised({}, std::nullopt), 3);
  EXPECT_EQ(advised(given, std::nullopt), 0);
  EXPECT_EQ(advised({}, 250), 0) << "the guard that lowered its limit was given one";
}

TEST(FaultWatch, TellsClocksOnlyWhereTheyAreLower) {
  GpuReading reading = well();
  reading.throttle = {Throttle::kPowerCap};
  reading.sm_clock_max_mhz = 1980;
  const auto what = [&](int mhz) {
    reading.sm_clock_mhz = mhz;
    return FaultWatch::at_once({}, watched_gpu(), reading).at(0).what;
  };
  EXPECT_EQ(what(1980), "GPU 0 (NVIDIA GeForce RTX 3070) runs slower than it could");
  EXPECT_EQ(what(1500), "GPU 0 (NVIDIA GeForce RTX 3070) runs slower than it could at 1500 of 1980 MHz");
}

TEST(FaultWatch, NamesHeatMemoryErrorsNarrowLinksFullMemoryAndLostGpus) {
  struct Case {
    const char* id;
    void (*spoil)(GpuFacts&, GpuReading&);
  };
  const Case cases[] = {
      {"warm", [](GpuFacts&, GpuReading& r) { r.temperature_c = 86; }},
      {"ecc_uncorrected", [](GpuFacts&, GpuReading& r) { r.ecc_uncorrected = 8; }},
      {"ecc_corrected", [](GpuFacts&, GpuReading& r) { r.ecc_corrected = 50; }},
      {"pcie_width", [](GpuFacts& f, GpuReading&) { f.pcie_width = 4, f.pcie_width_max = 16; }},
      {"pcie_generation",
       [](GpuFacts& f, GpuReading& r) {
         f.pcie_generation = 1, f.pcie_generation_max = 4, r.utilisation_percent = 90;
       }},
      {"memory_full", [](GpuFacts&, GpuReading& r) { r.memory_used_bytes = (8ull << 30) - 1; }},
      {"silent", [](GpuFacts&, GpuReading& r) { r.trouble = "Unknown Error"; }},
      {"lost", [](GpuFacts&, GpuReading& r) { r.lost = true, r.trouble = "GPU is lost"; }},
  };
  for (const Case& one : cases) {
    FaultWatch watch({});
    EXPECT_TRUE(reported(watch, watched_gpu(), well(), 5, 0).empty());
    GpuFacts facts = watched_gpu();
    GpuReading reading = well();
    one.spoil(facts, reading);
    const auto notices = reported(watch, facts, reading, 30);
    ASSERT_EQ(notices.size(), 1u) << one.id;
    EXPECT_EQ(notices[0].id, one.id);
    EXPECT_NE(notices[0].text().find("; cause: "), std::string::npos);
    EXPECT_NE(notices[0].text().find("; do: "), std::string::npos);
  }
}

TEST(FaultWatch, TellsOnceAndThatItIsOver) {
  FaultWatch watch({});
  GpuReading hot = well();
  hot.temperature_c = 88;
  EXPECT_EQ(reported(watch, watched_gpu(), hot, 1000).size(), 1u);
  const auto after = reported(watch, watched_gpu(), well(), 100, 1100);
  ASSERT_EQ(after.size(), 1u);
  EXPECT_TRUE(after[0].over);
  EXPECT_EQ(reported(watch, watched_gpu(), hot, 100, 1200).size(), 1u) << "ten minutes later it is reported again";
}

TEST(FaultWatch, AMomentIsNoFault) {
  FaultWatch watch({});
  GpuReading capped = well();
  capped.throttle = {Throttle::kPowerCap};
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(reported(watch, watched_gpu(), capped, 3, i * 10).empty());
    EXPECT_TRUE(reported(watch, watched_gpu(), well(), 3, i * 10 + 3).empty());
  }
}

TEST(FaultWatch, OneLookTellsAllThatIsWrongNow) {
  GpuReading reading = well();
  reading.ecc_uncorrected = 3;
  reading.temperature_c = 91;
  GuardOptions watcher;
  watcher.acts = false;
  std::vector<std::string> ids;
  for (const GpuNotice& notice : FaultWatch::at_once(watcher, watched_gpu(), reading)) {
    ids.push_back(notice.id);
    EXPECT_EQ(notice.text().find("acted upon"), std::string::npos) << "nobody acts";
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"warm", "ecc_uncorrected"}));
  reading.lost = true;
  ASSERT_EQ(FaultWatch::at_once(watcher, watched_gpu(), reading).size(), 1u);
  EXPECT_EQ(FaultWatch::at_once(watcher, watched_gpu(), reading)[0].id, "lost");
}

TEST(FaultWatch, NamesAnXid) {
  FaultWatch watch({});
  const GpuNotice notice = watch.xid({watched_gpu()}, {.gpu = 0, .xid = 79});
  EXPECT_EQ(notice.weight, GpuNotice::Weight::kFault);
  EXPECT_NE(notice.text().find("fallen off the bus"), std::string::npos);
  EXPECT_FALSE(notice.todo.empty());
}

TEST(FaultWatch, NamesADriverThatHangs) {
  FaultWatch watch({});
  EXPECT_FALSE(watch.silence(2));
  ASSERT_TRUE(watch.silence(11));
  EXPECT_FALSE(watch.silence(12)) << "once";
  ASSERT_TRUE(watch.silence(0)) << "it answers again";
}

}  // namespace
}  // namespace tandem
