#include "guard/effect.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(EffectMeter, ComparesPowerAndSpeedBeforeAndAfter) {
  EffectMeter meter;
  double steps = 0;
  for (int t = 0; t < 100; ++t) {
    if (t == 40) meter.changed(t, 0, 220, 176);
    meter.add(t, t, {{0, t < 40 ? 220 : 176}}, steps += t < 40 ? 100 : 95);
    const auto done = meter.finished();
    EXPECT_EQ(done.size(), t == 60 ? 1u : 0u) << t;
    if (done.empty()) continue;
    EXPECT_NEAR(done[0].saved_share(), 0.2, 1e-9);
    EXPECT_NEAR(*done[0].lost_share(), 0.05, 1e-3);
    EXPECT_EQ(done[0].text("steps"),
              "GPU 0: limit 220 -> 176 W: power 220 -> 176 W (20.0 % less), speed 100 -> 95 steps/s (5.0 % less)");
  }
  // 95 steps took 95 x 2.2 J before, and 176 J now.
  EXPECT_NEAR(meter.saved_joules(), 60 * (95 * 2.2 - 176), 1e-6);
}

TEST(EffectMeter, TheNextChangeEndsTheWindow) {
  EffectMeter meter;
  double steps = 0;
  std::vector<Effect> done;
  for (int t = 0; t < 100; ++t) {
    if (t == 40) meter.changed(t, 0, 220, 198);
    if (t == 55) meter.changed(t, 0, 198, 176);
    meter.add(t, t, {{0, t < 40 ? 220 : t < 55 ? 198 : 176}}, steps += 100);
    for (const Effect& effect : meter.finished()) done.push_back(effect);
  }
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].after_w, 198) << "not mixed with what came after";
  EXPECT_EQ(done[1].before_w, 198) << "nor with what was before";
  EXPECT_EQ(done[1].after_w, 176);
}

TEST(EffectMeter, AChangeThatIsChangedAtOnceTellsNothing) {
  EffectMeter meter;
  int reported = 0;
  for (int t = 0; t < 100; ++t) {
    if (t == 40) meter.changed(t, 0, 220, 198);
    if (t == 47) meter.changed(t, 0, 198, 220);
    meter.add(t, t, {{0, 200}}, std::nullopt);
    reported += static_cast<int>(meter.finished().size());
  }
  EXPECT_LE(reported, 1);
}

TEST(EffectMeter, ARunThatIsHeldSavesNothing) {
  EffectMeter meter;
  double steps = 0;
  for (int t = 0; t < 100; ++t) {
    if (t == 40) meter.changed(t, 0, 220, 176);
    const bool held = t >= 49;
    meter.add(t, t, {{0, held ? 30 : t < 40 ? 220 : 176}}, held ? std::optional<double>() : steps += 100);
  }
  EXPECT_NEAR(meter.saved_joules(), 9 * 44, 1e-6);
  EXPECT_TRUE(meter.finished().empty()) << "too few seconds to measure an effect";
}

TEST(EffectMeter, AChangeWhileTheRunIsHeldIsNotMeasuredByItsSteps) {
  for (const int begin : {20, 40}) {
    EffectMeter meter;
    double steps = 0;
    for (int t = 0; t < 100; ++t) {
      if (t == 43) meter.changed(t, 0, 220, 176);
      const bool held = t >= begin && t < 50;
      meter.add(t, t, {{0, held ? 30 : t < begin ? 220 : 176}}, held ? std::optional<double>() : steps += 100);
      EXPECT_TRUE(meter.finished().empty()) << "30 W before and 176 W after are no effect of the limit";
    }
    EXPECT_EQ(meter.saved_joules(), 0);
  }
}

TEST(EffectMeter, WithoutARunTellsThePowerAlone) {
  EffectMeter meter;
  std::vector<Effect> done;
  for (int t = 0; t < 100; ++t) {
    if (t == 40) meter.changed(t, 0, 220, 176);
    meter.add(t, t, {{0, 200}}, std::nullopt);
    for (const Effect& effect : meter.finished()) done.push_back(effect);
  }
  ASSERT_EQ(done.size(), 1u);
  EXPECT_FALSE(done[0].lost_share());
  EXPECT_NE(done[0].text("steps").find("no run on it"), std::string::npos);
}

}  // namespace
}  // namespace tandem
