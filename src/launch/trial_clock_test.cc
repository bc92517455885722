#include "launch/trial_clock.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// Steps done when it ends, and when that is, with one step in each `step` seconds.
std::pair<int64_t, double> end_of(TrialClock clock, double step) {
  for (double now = 1; now < 1e4; now += .05)
    if (const auto done = static_cast<int64_t>((now - 1) / step); clock.is_over(done, now)) return {done, now - 1};
  return {-1, 0};
}

TEST(TrialClock, FastStepsAreCountedForTheTimeThatWasAskedFor) {
  const auto [steps, seconds] = end_of({5, trial_rule(false)}, .01);
  EXPECT_NEAR(seconds, 5, .2);
  EXPECT_NEAR(static_cast<double>(steps), 500, 20);
}

TEST(TrialClock, SlowStepsAreCountedUntilThereAreEnough) {
  for (const bool gpu : {false, true}) {
    const TrialRule rule = trial_rule(gpu);
    EXPECT_EQ(end_of({1, rule}, 2).first, rule.warm_up + rule.least) << gpu;
  }
}

TEST(TrialClock, VerySlowStepsEndItAtTheFewestThatAreAMeasure) {
  const TrialRule rule = trial_rule(true);
  EXPECT_EQ(end_of({5, rule}, 30).first, rule.warm_up + TrialRule{}.least);
  EXPECT_EQ(end_of({60, rule}, 70).first, rule.warm_up + rule.least) << "ten minutes are enough for all of them";
}

TEST(TrialClock, OnAGpuTheTimeBeginsOnceGraphsHaveAgreed) {
  const TrialRule rule = trial_rule(true);
  const double warm = static_cast<double>(rule.warm_up) * .3;
  EXPECT_NEAR(end_of({5, rule}, .3).second, warm + 5, .2);
}

}  // namespace
}  // namespace tandem
