#include "simulation.h"

#include <gtest/gtest.h>

namespace tandem::simulation {
namespace {

std::string described(const Options& options, const ScheduleResult& outcome) {
  std::string text = outcome.violation + "\n" + outcome.job + "\n";
  for (const std::string& event : outcome.events) text += event + "\n";
  return text + "again: make simulate SEED=" + std::to_string(options.seed);
}

// The first of `schedules` seeds that breaks a promise; 0 if none does.
uint64_t first_caught(Mutant mutant, uint64_t schedules) {
  for (uint64_t seed = 1; seed <= schedules; ++seed)
    if (!simulate({.seed = seed, .mutant = mutant}).violation.empty()) return seed;
  return 0;
}

TEST(Simulation, NoScheduleBreaksAPromise) {
  int gone_on = 0, restores = 0, restarts = 0;
  for (Options options{.seed = 1}; options.seed <= 400; ++options.seed) {
    const ScheduleResult outcome = simulate(options);
    ASSERT_EQ(outcome.violation, "") << described(options, outcome);
    gone_on += outcome.gone_on, restores += outcome.restores, restarts += outcome.restarts;
  }
  EXPECT_GT(gone_on, 50);
  EXPECT_GT(restores, 400);
  EXPECT_GT(restarts, 50);
}

TEST(Simulation, SixtyFourWorkersKeepThePromisesToo) {
  for (Options options{.seed = 1, .workers = 64}; options.seed <= 5; ++options.seed) {
    const ScheduleResult outcome = simulate(options);
    ASSERT_EQ(outcome.violation, "") << described(options, outcome);
  }
}

TEST(Simulation, TheSameSeedGivesTheSameSchedule) {
  const ScheduleResult one = simulate({.seed = 17}), two = simulate({.seed = 17}), other = simulate({.seed = 18});
  EXPECT_EQ(one.ticks, two.ticks);
  EXPECT_EQ(one.events, two.events);
  EXPECT_NE(one.events, other.events);
}

TEST(Simulation, EveryMutantIsCaught) {
  for (const auto& [name, mutant] : mutants()) EXPECT_GT(first_caught(mutant, 500), 0u) << name;
}

}  // namespace
}  // namespace tandem::simulation
