// Parts of a schedule that are given in epochs.
#include "engine/last_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/errors.h"
#include "engine/schedule.h"

namespace tandem {
namespace {

struct EpochRecipe : Recipe {
  explicit EpochRecipe(int64_t steps_of_an_epoch) : steps(steps_of_an_epoch) {}
  void build(JobState&) override {}
  std::vector<Phase> phases() const override { return {}; }
  void run(const Phase&, ShardContext&) override {}
  void apply(const Phase&, const Total&, StepContext&) override {}
  int64_t steps_in(const std::string& unit, int64_t count) const override {
    return unit == "epochs" ? count * steps : 0;
  }
  int64_t steps;
};

struct PlainSettings : RecipeSettings {
  PlainSettings() { schedule.kind = "cosine_restarts"; }
};

ScheduleSettings in_steps(PlainSettings settings, int64_t steps_of_an_epoch) {
  Resolver resolver(settings);
  settings.check();
  schedule_in_steps(EpochRecipe(steps_of_an_epoch), settings, resolver);
  return settings.schedule;
}

// Cosine annealing with warm restarts as Loshchilov and Hutter write it; all in epochs.
double plain_formula(const ScheduleSettings& s, double epoch) {
  const double first = s.restart_epochs, factor = s.restart_factor;
  const double cycle = factor == 1 ? std::floor(epoch / first)
                                   : std::floor(std::log(epoch / first * (factor - 1) + 1) / std::log(factor));
  const double began = factor == 1 ? cycle * first : first * (std::pow(factor, cycle) - 1) / (factor - 1);
  const double progress = (epoch - began) / (first * std::pow(factor, cycle));
  return s.min_factor + (1 - s.min_factor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

TEST(WarmRestartsInEpochs, FollowThePlainFormula) {
  for (const auto& [steps_of_an_epoch, epochs, factor] :
       {std::tuple<int64_t, double, double>{10, 1.5, 2}, {7, 3, 1}, {12, 0.25, 4}, {1000, 0.01, 2}}) {
    PlainSettings settings;
    settings.schedule.warmup_epochs = 1;
    settings.schedule.restart_epochs = epochs;
    settings.schedule.restart_factor = factor;
    settings.schedule.min_factor = 0.1;
    const ScheduleSettings schedule = in_steps(settings, steps_of_an_epoch);
    for (int64_t update = 0; update < 20 * steps_of_an_epoch; ++update) {
      const double epoch = static_cast<double>(update) / static_cast<double>(steps_of_an_epoch);
      // A hair later: at a restart the formula's own rounding must not fall back into the cycle before.
      const double want =
          epoch < 1 ? epoch + 1.0 / static_cast<double>(steps_of_an_epoch) : plain_formula(schedule, epoch - 1 + 1e-9);
      ASSERT_NEAR(schedule_factor(schedule, update), want, 1e-6)
          << epochs << " epochs of " << steps_of_an_epoch << " steps, update " << update;
    }
  }
}

TEST(WarmRestartsInEpochs, BecomeTheNearestWholeNumberOfStepsAndAtLeastOne) {
  for (const auto& [epochs, steps] : {std::pair<double, int64_t>{2, 20}, {0.26, 3}, {0.24, 2}, {0.001, 1}}) {
    PlainSettings settings;
    settings.schedule.restart_epochs = epochs;
    EXPECT_EQ(in_steps(settings, 10).restart_steps, steps) << epochs;
  }
}

TEST(WarmRestartsInEpochs, AreWrittenIntoTheRecipeWithWhereTheyComeFrom) {
  PlainSettings settings;
  settings.schedule.restart_steps = 77;
  settings.schedule.restart_epochs = 2;
  Resolver resolver(settings);
  schedule_in_steps(EpochRecipe(10), settings, resolver);
  EXPECT_EQ(settings.schedule.restart_steps, 20) << "epochs win";
  EXPECT_EQ(resolver.source("schedule.restart_steps"), "schedule.restart_epochs");
}

TEST(WarmRestartsInEpochs, NeedALengthAndARecipeThatHasEpochs) {
  PlainSettings settings;
  EXPECT_THROW(settings.check(), ConfigError) << "neither steps nor epochs";
  settings.schedule.restart_epochs = 2;
  try {
    in_steps(settings, 0);
    FAIL() << "it has no epochs";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "schedule.restart_epochs is 2, but this recipe has no epochs");
    EXPECT_EQ(error.todo(), "set schedule.restart_steps instead");
  }
  settings.schedule.restart_epochs = 0;
  settings.schedule.restart_steps = 5;
  EXPECT_EQ(in_steps(settings, 0).restart_steps, 5) << "steps do without epochs";
}

}  // namespace
}  // namespace tandem
