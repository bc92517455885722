#include "guard/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "config/run_settings.h"

namespace tandem {
namespace {

using Kind = GuardAction::Kind;

// A GPU by the law of the fake machines: it goes to ambient + rise x power / default power, a fan at 100 % takes 35 %
// of the rise away.
struct ToyGpu {
  GpuFacts facts;
  double celsius = 40, load = 1, share = 1, rise = 50, limit_w = 220, tau_s = 30;
  bool fan = false;
  GpuReading reading() const {
    GpuReading r;
    r.index = facts.index;
    r.temperature_c = static_cast<int>(std::lround(celsius));
    r.power_w = power();
    r.power_limit_w = limit_w;
    return r;
  }
  double power() const { return std::min(220 * load * share, limit_w); }
  void pass(double seconds) {
    const double goal = 25 + rise * power() / 220 * (fan ? 0.65 : 1);
    celsius += (goal - celsius) * (1 - std::exp(-seconds / tau_s));
  }
};

struct Toy {
  explicit Toy(GuardOptions options, int count = 3) : policy(options) {
    for (int i = 0; i < count; ++i) {
      ToyGpu gpu;
      gpu.facts.index = i;
      gpu.facts.name = "Toy";
      gpu.facts.fans = 2;
      gpu.facts.power_min_w = 100;
      gpu.facts.power_limit_w = 220;
      gpu.facts.slowdown_c = 95;
      gpu.facts.shutdown_c = 98;
      gpus.push_back(gpu);
    }
  }
  // Simulates so many seconds and carries out the actions.
  void simulate(double seconds) {
    for (double end = time + seconds; time < end; time += 1) {
      std::vector<GpuFacts> facts;
      std::vector<GpuReading> readings;
      for (ToyGpu& gpu : gpus) {
        if (held) gpu.share = 0;
        gpu.pass(1);
        facts.push_back(gpu.facts);
        readings.push_back(gpu.reading());
        most = std::max(most, gpu.celsius);
      }
      for (const GuardAction& action : policy.step(time, facts, readings)) {
        actions.push_back(action);
        times.push_back(time);
        if (action.kind == Kind::kHold || action.kind == Kind::kResume) held = action.kind == Kind::kHold;
        ToyGpu& gpu = gpus.at(action.gpu);
        if (refuse.contains(action.kind)) {
          policy.refused(action, "no", refuse[action.kind]);
          continue;
        }
        if (action.kind == Kind::kPower && late_s > 0) {
          late.emplace_back(time + late_s, action);
          continue;
        }
        policy.done(action, time);
        if (action.kind == Kind::kFan || action.kind == Kind::kFanAuto) gpu.fan = action.kind == Kind::kFan;
        if (action.kind == Kind::kPower || action.kind == Kind::kPowerBack) gpu.limit_w = action.value;
      }
      for (; !late.empty() && late.front().first <= time; late.pop_front()) {
        gpus.at(late.front().second.gpu).limit_w = late.front().second.value;
        policy.done(late.front().second, time);
      }
      for (ToyGpu& gpu : gpus) gpu.share = held ? 0 : policy.share(gpu.facts.index);
    }
  }
  int count(Kind kind) const {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [&](const auto& o) { return o.kind == kind; }));
  }
  std::vector<Kind> kinds() const {
    std::vector<Kind> out;
    for (const GuardAction& action : actions)
      if (action.kind != Kind::kNote) out.push_back(action.kind);
    return out;
  }
  GuardPolicy policy;
  std::vector<ToyGpu> gpus;
  std::vector<GuardAction> actions;
  std::vector<double> times;
  std::map<Kind, bool> refuse;  // for good?
  double late_s = 0;            // power actions take so long
  std::deque<std::pair<double, GuardAction>> late;
  double time = 0, most = 0;
  bool held = false;
};

GuardOptions all() {
  GuardOptions options;
  options.power = PowerLimit{.share = 0.8};
  options.shares = options.hold = true;
  return options;
}

TEST(GuardPolicy, LeavesACoolMachineAlone) {
  Toy toy(all());
  toy.simulate(3600);
  EXPECT_TRUE(toy.actions.empty());
}

TEST(GuardPolicy, MovesShardsFirstThenTheFanThenThePowerLimit) {
  Toy toy(all());
  toy.gpus[0].rise = 160;  // too hot whatever is done, but for the last rung
  toy.gpus[0].tau_s = 400;
  toy.gpus[0].celsius = 89;
  // Shards that moved away do not cool this one: somebody else works on it.
  for (int i = 0; i < 200; ++i) {
    toy.simulate(1);
    toy.gpus[0].share = 1;
    toy.gpus[0].celsius = std::min(toy.gpus[0].celsius, 92.0);
  }
  const std::vector<Kind> expected = {Kind::kShare, Kind::kShare, Kind::kFan, Kind::kPower, Kind::kPower};
  EXPECT_EQ(toy.kinds(), expected);
  EXPECT_EQ(toy.gpus[0].limit_w, 176);  // 80 %, no further
  for (size_t i = 1; i < expected.size(); ++i) EXPECT_GE(toy.times[i] - toy.times[i - 1], GuardPolicy::kSettleSeconds);
}

TEST(GuardPolicy, ASmallerShareIsEnoughWhereItCools) {
  Toy toy(all());
  toy.gpus[0].rise = 68;  // 93 C at full load
  toy.gpus[0].tau_s = 60;
  toy.simulate(1800);
  EXPECT_EQ(toy.count(Kind::kFan), 0);
  EXPECT_EQ(toy.count(Kind::kPower), 0);
  EXPECT_GE(toy.count(Kind::kShare), 1);
  EXPECT_LT(toy.gpus[0].celsius, 90);
}

TEST(GuardPolicy, NeverFlaps) {
  Toy toy(all());
  toy.gpus[0].rise = 68;  // hot with all its shards, cool with 60 % of them: the bait for a flapper
  toy.simulate(4 * 3600);
  EXPECT_LE(toy.actions.size(), 40u) << "in four hours";
  for (size_t i = 1; i < toy.times.size(); ++i) EXPECT_GE(toy.times[i] - toy.times[i - 1], 3);
  // It waits longer each time.
  EXPECT_GE(toy.times.back() - toy.times[toy.times.size() - 2], 30);
}

TEST(GuardPolicy, GivesEverythingBackInTheOppositeOrder) {
  Toy toy(all(), 1);  // alone: no shards to move
  toy.gpus[0].celsius = 91;
  toy.gpus[0].tau_s = 1e9;  // stays hot
  toy.simulate(80);
  EXPECT_EQ(toy.kinds(), (std::vector<Kind>{Kind::kFan, Kind::kPower, Kind::kPower}));
  toy.gpus[0].celsius = 60;
  toy.simulate(300);
  EXPECT_EQ(toy.kinds(), (std::vector<Kind>{Kind::kFan, Kind::kPower, Kind::kPower, Kind::kPower, Kind::kPowerBack,
                                            Kind::kFanAuto}));
  EXPECT_EQ(toy.gpus[0].limit_w, 220);
  EXPECT_FALSE(toy.gpus[0].fan);
}

TEST(GuardPolicy, PausesBeforeDamageAndGoesOnByItself) {
  Toy toy(all());
  for (ToyGpu& gpu : toy.gpus) gpu.celsius = 80, gpu.rise = 90, gpu.tau_s = 20;  // all of them: nowhere to move to
  toy.simulate(60);
  ASSERT_GE(toy.count(Kind::kHold), 1);
  EXPECT_LT(toy.most, 97) << "one degree below where the GPU switches itself off";
  for (ToyGpu& gpu : toy.gpus) gpu.rise = 50;  // the window is open now
  toy.simulate(600);
  EXPECT_EQ(toy.count(Kind::kHold), toy.count(Kind::kResume));
  EXPECT_FALSE(toy.policy.held());
}

// Somebody else heats GPU 0: it jumps to where the run is held, and stays there.
Toy heated_by_somebody_else(const GuardOptions& options) {
  Toy toy(options);
  toy.gpus[0].celsius = 96;
  toy.gpus[0].tau_s = 1e9;
  return toy;
}

TEST(GuardPolicy, AGpuThatStaysHotWhileTheRunWaitsGetsItsFanThenALowerLimit) {
  Toy toy = heated_by_somebody_else(all());
  toy.simulate(60);
  std::vector<Kind> expected = {Kind::kShare, Kind::kHold, Kind::kFan, Kind::kPower, Kind::kPower};
  EXPECT_EQ(toy.kinds(), expected) << "and no shards: nothing runs that could move";
  for (size_t i = 2; i < expected.size(); ++i) EXPECT_EQ(toy.times[i] - toy.times[i - 1], GuardPolicy::kHotSeconds);
  EXPECT_EQ(toy.gpus[0].limit_w, 176);  // 80 %, no further
  EXPECT_TRUE(toy.policy.held());

  toy.gpus[0].celsius = 60;
  toy.simulate(300);
  for (const Kind kind : {Kind::kResume, Kind::kPower, Kind::kPowerBack, Kind::kFanAuto, Kind::kShare})
    expected.push_back(kind);
  EXPECT_EQ(toy.kinds(), expected) << "given back as always";
  EXPECT_EQ(toy.gpus[0].limit_w, 220);
  EXPECT_FALSE(toy.gpus[0].fan);
}

TEST(GuardPolicy, AHoldHasItsTimeToHelpLikeEveryRung) {
  Toy toy = heated_by_somebody_else(all());
  toy.simulate(1);
  ASSERT_TRUE(toy.policy.held());
  toy.gpus[0].celsius = 92;  // hot, but no longer so hot that nothing can be awaited
  toy.simulate(GuardPolicy::kSettleSeconds - 1);
  EXPECT_EQ(toy.count(Kind::kFan), 0);
  toy.simulate(1);
  EXPECT_EQ(toy.count(Kind::kFan), 1);
  toy.simulate(GuardPolicy::kSettleSeconds - 1);
  EXPECT_EQ(toy.count(Kind::kPower), 0);
  toy.simulate(1);
  EXPECT_EQ(toy.count(Kind::kPower), 1);
}

TEST(GuardPolicy, AHoldThatCoolsTheGpuNeedsNothingMore) {
  Toy toy(all());
  toy.gpus[0].celsius = 96;  // by its own work, which stops
  toy.gpus[0].tau_s = 20;
  toy.simulate(120);
  EXPECT_EQ(toy.count(Kind::kHold), 1);
  EXPECT_EQ(toy.count(Kind::kResume), 1);
  EXPECT_EQ(toy.count(Kind::kFan), 0);
  EXPECT_EQ(toy.count(Kind::kPower), 0);
}

TEST(GuardPolicy, WhatIsNotAllowedIsNotDoneWhileTheRunWaits) {
  GuardOptions options = all();
  options.power.reset();
  options.fan = false;
  Toy toy = heated_by_somebody_else(options);
  toy.simulate(60);
  EXPECT_EQ(toy.kinds(), (std::vector<Kind>{Kind::kShare, Kind::kHold}));
  ASSERT_EQ(toy.count(Kind::kNote), 1) << "noted once that nothing more may be done";
  EXPECT_NE(toy.actions.back().text.find("the run waits and all that may be done is done"), std::string::npos)
      << toy.actions.back().text;
}

TEST(GuardPolicy, TouchesNoPowerLimitUnlessTheUserAllowedIt) {
  GuardOptions options = all();
  options.power.reset();
  Toy toy(options, 1);
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(600);
  EXPECT_EQ(toy.count(Kind::kPower), 0);
  EXPECT_EQ(toy.count(Kind::kFan), 1);
  ASSERT_EQ(toy.count(Kind::kNote), 1) << "noted once that nothing more may be done";
  EXPECT_NE(toy.actions.back().text.find("--power 80%"), std::string::npos);
}

TEST(GuardPolicy, WhatTheDriverRefusesIsLeftOut) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(60);
  EXPECT_EQ(toy.count(Kind::kFan), 1);
  EXPECT_EQ(toy.count(Kind::kPower), 2);
}

TEST(GuardPolicy, WhatIsRefusedForNowIsTriedAgain) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.refuse[Kind::kPower] = false;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(30);
  EXPECT_EQ(toy.count(Kind::kPower), 1) << "not every second";
  toy.refuse.erase(Kind::kPower);  // the other guard has ended
  toy.simulate(GuardPolicy::kRetrySeconds + 20);
  EXPECT_LT(toy.gpus[0].limit_w, 220);
}

TEST(GuardPolicy, ARefusalIsToldOnceUntilItsWordsChange) {
  Toy toy(all(), 1);
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(5);
  ASSERT_EQ(toy.count(Kind::kFan), 1);
  const GuardAction fan = toy.actions[0];
  EXPECT_TRUE(toy.policy.refused(fan, "busy", false));
  EXPECT_FALSE(toy.policy.refused(fan, "busy", false));
  EXPECT_TRUE(toy.policy.refused(fan, "I/O error", false));
}

TEST(GuardPolicy, ARefusedStepKeepsTheOneBefore) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(10);
  ASSERT_EQ(toy.gpus[0].limit_w, 198);
  toy.refuse[Kind::kPower] = true;
  toy.simulate(30);
  ASSERT_EQ(toy.count(Kind::kPower), 2);
  toy.gpus[0].celsius = 60;
  toy.simulate(120);
  EXPECT_EQ(toy.count(Kind::kPowerBack), 1) << "198 W is still ours to give back";
  EXPECT_EQ(toy.gpus[0].limit_w, 220);
}

TEST(GuardPolicy, ItsOwnLateOrderIsNobodyElses) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.late_s = 20;
  toy.simulate(100);
  EXPECT_EQ(toy.count(Kind::kNote), 1) << "only that nothing more may be done: " << toy.actions[1].text;
  EXPECT_EQ(toy.gpus[0].limit_w, 176);
  EXPECT_EQ(toy.count(Kind::kPower), 2) << "the next one only when the last was carried out";
}

TEST(GuardPolicy, AReadingFromBeforeTheOrderProvesNothing) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(6);
  ASSERT_EQ(toy.count(Kind::kPower), 1);
  toy.policy.done(toy.actions.back(), 30);  // a reading of second 20 lay in a queue
  GpuReading old = toy.gpus[0].reading();
  old.power_limit_w = 220;
  EXPECT_TRUE(toy.policy.step(20, {toy.gpus[0].facts}, {old}).empty());
}

TEST(GuardPolicy, AGpuThatLeavesTheRunGetsBackWhatWasTaken) {
  Toy toy(all(), 2);
  for (ToyGpu& gpu : toy.gpus) gpu.celsius = 92, gpu.tau_s = 1e9;
  toy.simulate(60);
  ASSERT_EQ(toy.gpus[1].limit_w, 176);
  std::vector<Kind> kinds;
  for (int t = 0; t < 60; ++t)
    for (const GuardAction& action : toy.policy.step(100 + t, {toy.gpus[0].facts}, {toy.gpus[0].reading()}))
      if (action.gpu == 1) kinds.push_back(action.kind);
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kPowerBack, Kind::kFanAuto}));
}

TEST(GuardPolicy, AHotGpuThatTellsNoTemperatureIsNotCool) {
  Toy toy(all(), 1);
  toy.gpus[0].celsius = 96;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(10);
  ASSERT_TRUE(toy.policy.held());
  GpuReading blind = toy.gpus[0].reading();
  blind.temperature_c.reset();
  for (int t = 20; t < 300; ++t) toy.policy.step(t, {toy.gpus[0].facts}, {blind});
  EXPECT_TRUE(toy.policy.held());
  for (int t = 300; t < 320; ++t) {
    toy.gpus[0].celsius = 50;
    toy.policy.step(t, {toy.gpus[0].facts}, {toy.gpus[0].reading()});
  }
  EXPECT_FALSE(toy.policy.held());
}

TEST(GuardPolicy, ALimitThatSomebodyElseChangedIsTheirs) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(10);
  ASSERT_EQ(toy.count(Kind::kPower), 1);
  toy.gpus[0].limit_w = 150;
  toy.simulate(100);
  EXPECT_EQ(toy.count(Kind::kPower), 1);
  EXPECT_EQ(toy.gpus[0].limit_w, 150);
  EXPECT_TRUE(toy.policy.give_all_back().empty());
}

TEST(GuardPolicy, TellsWhichLimitsItHoldsLowerUntilTheyAreBack) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  EXPECT_TRUE(toy.policy.lowered().empty());
  toy.simulate(10);
  EXPECT_EQ(toy.policy.lowered(), (std::map<int, double>{{0, 220}}));
  toy.gpus[0].celsius = 60;
  toy.simulate(300);
  EXPECT_EQ(toy.gpus[0].limit_w, 220);
  EXPECT_TRUE(toy.policy.lowered().empty());
}

TEST(GuardPolicy, ALimitThatSomebodyElseSetIsNotHeldByTheGuard) {
  Toy toy(all(), 1);
  toy.refuse[Kind::kFan] = true;
  toy.gpus[0].celsius = 92;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(10);
  toy.gpus[0].limit_w = 150;
  toy.simulate(10);
  EXPECT_TRUE(toy.policy.lowered().empty());
}

TEST(GuardPolicy, SaysTheTemperaturesOfTheGpusAtHand) {
  GpuFacts h100, rtx;
  h100.slowdown_c = 87;
  rtx.slowdown_c = 95;
  EXPECT_EQ(heat_text(all(), {}), "good to 80 C, warning from 85 C, acting from 90 C");
  EXPECT_EQ(heat_text(all(), {rtx, rtx}), "good to 80 C, warning from 85 C, acting from 90 C");
  EXPECT_EQ(heat_text(all(), {h100, h100}), "good to 79 C, warning from 82 C, acting from 85 C");
  EXPECT_EQ(heat_text(all(), {rtx, h100}), "good to 79-80 C, warning from 82-85 C, acting from 85-90 C");
}

TEST(GuardPolicy, ActsBeforeTheGpuDoes) {
  GpuFacts h100;
  h100.slowdown_c = 87;
  h100.shutdown_c = 92;
  const HeatLimits limits = HeatLimits::of(all(), h100);
  EXPECT_EQ(limits.act_c, 85);
  EXPECT_EQ(limits.pause_c, 89);
  EXPECT_LT(limits.warn_c, limits.act_c);
  EXPECT_LT(limits.target_c, limits.warn_c);
  EXPECT_EQ(HeatLimits::of(all(), GpuFacts{}).act_c, 90);
}

TEST(GuardPolicy, AWatcherChangesNothing) {
  GuardSettings settings;
  settings.mode = "watch";
  Toy toy(GuardOptions::from(settings));
  toy.gpus[0].celsius = 97;
  toy.gpus[0].tau_s = 1e9;
  toy.simulate(100);
  EXPECT_TRUE(toy.actions.empty());
}

TEST(GuardPolicy, AMissingTemperatureIsNoReasonToAct) {
  Toy toy(all(), 1);
  GpuReading reading;
  for (int t = 0; t < 100; ++t) EXPECT_TRUE(toy.policy.step(t, {toy.gpus[0].facts}, {reading}).empty());
}

}  // namespace
}  // namespace tandem
