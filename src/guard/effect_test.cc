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
  EXPECT_NEAR(meter.saved_joules(), 60 * 44, 1e-6);
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
