#include "jobs/set_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem {
namespace {

// Costs of a machine: step of one agent, and what one more adds, in microseconds; three models of GPUs.
struct TestGpu {
  int model;
  double fixed, divided;
};

SetQuestion question_of(const std::vector<TestGpu>& gpus, int agents, double steps = 15'000) {
  SetQuestion question;
  for (size_t d = 0; d < gpus.size(); ++d)
    question.devices.push_back({.name = "cuda:" + std::to_string(d),
                                .model = gpus[d].model,
                                .memory_bytes = 7e9,
                                .start_seconds = 3,
                                .sum_seconds = 3e-4,
                                .float_seconds = 4e-10});
  for (int a = 0; a < agents; ++a) {
    SetUnit unit{.name = "agent" + std::to_string(a),
                 .alike = 0,
                 .steps = steps,
                 .shards = 8,
                 .costs = {},
                 .save_seconds = 1.36,
                 .memory_bytes = .7e9,
                 .combine_floats = 266e3};
    for (const TestGpu& gpu : gpus)
      unit.costs.push_back({gpu.fixed * 1e-6, gpu.divided * 1e-6, .62 * gpu.divided * 1e-6});
    question.units.push_back(unit);
  }
  question.seconds_beside = .9 * agents;
  return question;
}

const TestGpu k3060Ti{0, 113, 199}, k3070{1, 113, 175}, kAda{2, 113, 58}, k4090{3, 113, 59}, kH100{4, 113, 40};

// The order that the runs are begun in is as they are listed; a run begins when all its GPUs are free.
double end_of(const SetQuestion& question, const std::vector<std::vector<int>>& groups,
              const std::vector<std::vector<int>>& devices) {
  std::vector<double> free(question.devices.size());
  double end = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    double begin = 0;
    for (const int d : devices[g]) begin = std::max(begin, free[static_cast<size_t>(d)]);
    const SetUnit& unit = question.units[static_cast<size_t>(groups[g].front())];
    const auto agents = static_cast<int>(groups[g].size());
    // The model in its own words, not by run_seconds().
    RunCost cost;  // of the slowest
    double all_more = 0;
    for (const int u : groups[g]) {
      const RunCost& own = question.units[static_cast<size_t>(u)].costs[static_cast<size_t>(devices[g].front())];
      all_more += own.more;
      if (own.fixed + own.divided > cost.fixed + cost.divided) cost = own;
    }
    const SetDevice& device = question.devices[static_cast<size_t>(devices[g].front())];
    const auto count = static_cast<double>(devices[g].size());
    double step = cost.fixed + (cost.divided + all_more - cost.more) * std::ceil(unit.shards / count) / unit.shards;
    if (count > 1)
      step += device.sum_seconds * (1 + std::log2(count)) / 2 +
              agents * unit.combine_floats * device.float_seconds * 2 * (count - 1) / count;
    const double done = begin + device.start_seconds + unit.steps * step + agents * unit.save_seconds;
    for (const int d : devices[g]) free[static_cast<size_t>(d)] = done;
    end = std::max(end, done);
  }
  return end + question.seconds_beside;
}

// Every partition of the agents into runs, every run on every set of equal GPUs. `several`: also runs of several GPUs.
class BruteForce {
 public:
  BruteForce(const SetQuestion& question, bool several) : q_(question), several_(several) { group(0); }
  double best() const { return best_; }
  int tried() const { return tried_; }

 private:
  void group(size_t unit) {
    if (unit == q_.units.size()) {
      devices_.assign(groups_.size(), {});
      return assign(0);
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (q_.units[static_cast<size_t>(groups_[g].front())].alike != q_.units[unit].alike || q_.units[unit].alike < 0)
        continue;
      groups_[g].push_back(static_cast<int>(unit));
      group(unit + 1);
      groups_[g].pop_back();
    }
    groups_.push_back({static_cast<int>(unit)});
    group(unit + 1);
    groups_.pop_back();
  }
  void assign(size_t g) {
    if (g == groups_.size()) {
      ++tried_;
      best_ = std::min(best_, end_of(q_, groups_, devices_));
      return;
    }
    const int count = static_cast<int>(q_.devices.size());
    for (int mask = 1; mask < 1 << count; ++mask) {
      std::vector<int> some;
      for (int d = 0; d < count; ++d)
        if (mask >> d & 1) some.push_back(d);
      const bool equal = std::ranges::all_of(some, [&](int d) {
        return q_.devices[static_cast<size_t>(d)].model == q_.devices[static_cast<size_t>(some.front())].model;
      });
      if (!equal || (some.size() > 1 && !several_)) continue;
      devices_[g] = some;
      assign(g + 1);
    }
  }

  const SetQuestion& q_;
  bool several_;
  std::vector<std::vector<int>> groups_, devices_;
  double best_ = 1e300;
  int tried_ = 0;
};

void expect_best(const SetQuestion& question, bool several = true) {
  const SetChoice choice = choose_set_plan(question);
  EXPECT_TRUE(choice.exact);
  const BruteForce force(question, several);
  EXPECT_GT(force.tried(), 100);
  EXPECT_LE(choice.best.seconds, 1.0001 * force.best()) << words_of(question, choice.best);
  EXPECT_GE(choice.best.seconds, .9999 * force.best()) << "the same model";
  EXPECT_DOUBLE_EQ(choice.least_seconds, choice.best.seconds);
  const auto alike = [&](const SetUnit& unit) { return unit.alike == 0; };
  for (size_t d = 0; d < question.devices.size() && std::ranges::all_of(question.units, alike); ++d) {
    std::vector<int> all(question.units.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_LE(choice.best.seconds, end_of(question, {all}, {{static_cast<int>(d)}})) << "never slower than one alone";
  }
  ASSERT_TRUE(choice.runner_up.has_value());
  EXPECT_GE(choice.runner_up->seconds, (1 - 1e-9) * choice.best.seconds);
  SetQuestion by_model = question;
  for (SetDevice& device : by_model.devices) device.name = std::string("model") + std::to_string(device.model);
  EXPECT_NE(words_of(by_model, *choice.runner_up), words_of(by_model, choice.best)) << "not the same on other GPUs";
}

TEST(SetPlan, SixAgentsOnThreeUnequalGpusEndWithTheBestOfAllWays) {
  expect_best(question_of({k3060Ti, k3070, k3070}, 6));
  expect_best(question_of({k3060Ti, k3070, k3070}, 6, 400));      // starts and saves are all there is
  expect_best(question_of({k3060Ti, k3070, k3070}, 6, 400'000));  // steps are
}

TEST(SetPlan, TwoFastUnequalAndFourEqualGpusToo) {
  expect_best(question_of({kAda, k4090}, 6));
  expect_best(question_of({k3060Ti, k3060Ti, k3060Ti, k3060Ti}, 4));
}

TEST(SetPlan, OfEightGpusSixHaveAnAgentEachWhereStepsAreLong) {
  const SetQuestion question = question_of(std::vector<TestGpu>(8, kH100), 6);
  const SetChoice choice = choose_set_plan(question);
  EXPECT_TRUE(choice.exact);
  EXPECT_EQ(words_of(question, choice.best),
            "1 agent on cuda:0, 1 on cuda:1, 1 on cuda:2, 1 on cuda:3, 1 on cuda:4, 1 on cuda:5");
  EXPECT_EQ(choice.best.devices().size(), 6U) << "two more would change nothing";
}

TEST(SetPlan, ALargeModelIsSpreadOverEqualGpusAndNeverOverUnequalOnes) {
  SetQuestion question = question_of({k3060Ti, k3070, k3070}, 1);
  for (RunCost& cost : question.units[0].costs) cost.divided = .05;
  const SetChoice choice = choose_set_plan(question);
  ASSERT_EQ(choice.best.runs.size(), 1U);
  EXPECT_EQ(choice.best.runs[0].devices, (std::vector<int>{1, 2}));
  EXPECT_EQ(words_of(question, choice.best), "1 agent on cuda:1 with cuda:2");
  EXPECT_LE(choice.best.seconds, 1.001 * BruteForce(question, true).best());
}

TEST(SetPlan, UnequalAgentsShareNoRunAndEndWithTheBestOfAllWays) {
  SetQuestion question = question_of({k3060Ti, k3070, k3070}, 5);
  question.units[3].alike = 1;  // steps of their own
  question.units[3].steps = 60'000;
  question.units[4].alike = -1;
  question.units[4].steps = 30'000;
  expect_best(question);
  for (const PlannedRun& run : choose_set_plan(question).best.runs)
    for (const int unit : run.units)
      EXPECT_EQ(question.units[static_cast<size_t>(unit)].alike,
                question.units[static_cast<size_t>(run.units[0])].alike);
}

TEST(SetPlan, WordsCountGpusOfOneName) {
  SetQuestion question = question_of({k3060Ti, k3070, k3070}, 6);
  const SetPlan best = choose_set_plan(question).best;
  EXPECT_EQ(words_of(question, best), "2 agents on cuda:0, 2 on cuda:1, 2 on cuda:2");
  for (SetDevice& device : question.devices) device.name = device.model == 0 ? "RTX 3060 Ti" : "RTX 3070";
  EXPECT_EQ(words_of(question, best), "2 agents on RTX 3060 Ti, 2 on each of 2 x RTX 3070");
}

TEST(SetPlan, PinsAndTogetherAreKept) {
  SetQuestion question = question_of({k3060Ti, k3070, k3070}, 6);
  question.units[2].pin = 0;
  for (const PlannedRun& run : choose_set_plan(question).best.runs)
    if (std::ranges::find(run.units, 2) != run.units.end()) {
      EXPECT_EQ(run.devices, std::vector<int>{0});
    }
  question.together = SetQuestion::Together::kOff;
  EXPECT_EQ(choose_set_plan(question).best.runs.size(), 6U);
  question.together = SetQuestion::Together::kOn;
  EXPECT_LE(choose_set_plan(question).best.runs.size(), 3U);
  question.most_devices = 1;
  const SetPlan one = choose_set_plan(question).best;
  EXPECT_EQ(one.devices(), std::vector<int>{0}) << "the pin's";
  EXPECT_EQ(one.runs.size(), 1U);
}

TEST(SetPlan, MoreGpusAreNeverSlower) {
  double before = 1e300;
  for (size_t most = 1; most <= 3; ++most) {
    SetQuestion question = question_of({k3060Ti, k3070, k3070}, 6);
    question.most_devices = most;
    const SetPlan best = choose_set_plan(question).best;
    EXPECT_LE(best.devices().size(), most);
    EXPECT_LE(best.seconds, before);
    before = best.seconds;
  }
}

TEST(SetPlan, ARunThatDoesNotFitIsCut) {
  SetQuestion question = question_of({k3070}, 6);
  for (SetUnit& unit : question.units) unit.memory_bytes = 1.1e9;  // six fit, five with the margin
  const SetPlan best = choose_set_plan(question).best;
  EXPECT_EQ(best.runs.size(), 2U);
}

TEST(SetPlan, AnAgentGoesOnlyWhereItFitsAndAloneItNeedsNoMargin) {
  SetQuestion question = question_of({k3060Ti, k3070}, 2);
  question.devices[0].memory_bytes = 4e9;  // somebody else uses it
  for (SetUnit& unit : question.units) unit.memory_bytes = 4.5e9;
  EXPECT_EQ(words_of(question, choose_set_plan(question).best), "1 + 1 agents on cuda:1");
  EXPECT_EQ(fits_nowhere(question), -1);
  for (SetUnit& unit : question.units) unit.memory_bytes = 4e9;
  EXPECT_EQ(choose_set_plan(question).best.devices().size(), 2U) << "4 of 4 GB";
  question.devices[0].memory_bytes = 0;
  for (SetUnit& unit : question.units) unit.memory_bytes = 90e9;
  EXPECT_EQ(choose_set_plan(question).best.devices(), std::vector<int>{0}) << "of which nothing is known";
}

TEST(SetPlan, WithoutRoomForAnAgentThereIsNoPlan) {
  SetQuestion question = question_of({k3060Ti, k3070}, 3);
  question.units[1].memory_bytes = 7.1e9;
  EXPECT_EQ(fits_nowhere(question), 1);
  EXPECT_TRUE(choose_set_plan(question).best.runs.empty());
  question.devices[0].memory_bytes = 8e9;
  EXPECT_EQ(fits_nowhere(question), -1);
  question.units[1].pin = 1;
  EXPECT_EQ(fits_nowhere(question), 1) << "where it must begin";
  question.units[1].steps = 0;
  EXPECT_EQ(fits_nowhere(question), -1) << "it is done";
}

// Agents that are alike by their settings, of which each was measured.
TEST(SetPlan, AgentsThatTakeUnequallyLongAreSharedOutByWhatEachTakes) {
  SetQuestion question = question_of({kAda, kAda}, 4, 100'000);
  const auto slow = [&](size_t u, double times) {
    for (RunCost& cost : question.units[u].costs) cost = cost.scaled(times);
  };
  slow(0, 3);
  slow(2, 2);
  expect_best(question);
  const SetPlan best = choose_set_plan(question).best;
  ASSERT_EQ(best.runs.size(), 2U);
  for (const PlannedRun& run : best.runs)
    if (std::ranges::find(run.units, 0) != run.units.end()) {
      EXPECT_EQ(run.units.size(), 1U) << "the slowest has a GPU to itself";
    }
  for (size_t u = 0; u < 4; ++u) slow(u, 1 + .07 * static_cast<double>(u));
  expect_best(question);
}

TEST(SetPlan, ARunTakesItsSlowestAgentAndWhatTheOthersAdd) {
  SetQuestion question = question_of({k3070}, 3, 1000);
  question.units[1].costs[0] = {.fixed = 1e-4, .divided = 9e-4, .more = 3e-4};
  const double more = question.units[0].costs[0].more;
  EXPECT_DOUBLE_EQ(step_seconds(question, {0, 1, 2}, {0}), 1e-3 + 2 * more);
  EXPECT_DOUBLE_EQ(step_seconds(question, {0, 2}, {0}), (113 + 175) * 1e-6 + more);
  EXPECT_DOUBLE_EQ(run_seconds(question, {0, 1, 2}, {0}), 3 + 1 + 2000 * more + 3 * 1.36);
  EXPECT_DOUBLE_EQ(run_seconds(question, {0, 2}, {0}), run_seconds(question, question.units[0], 2, {0}));
  question.units[1].agents = 2;
  EXPECT_DOUBLE_EQ(step_seconds(question, {0, 1}, {0}), 1e-3 + 3e-4 + more);
  EXPECT_DOUBLE_EQ(run_seconds(question, {0, 1}, {0}), 3 + 1000 * (1.3e-3 + more) + 3 * 1.36);
}

TEST(SetPlan, GpusThatShareARunHaveWholeShardsAndAddUp) {
  SetQuestion question = question_of({k3070, k3070, k3070, k3070}, 1);
  const double fixed = 113e-6, divided = 175e-6, more = .62 * divided, floats = 266e3 * 4e-10;
  const SetUnit& unit = question.units[0];
  EXPECT_DOUBLE_EQ(step_seconds(question, unit, 1, {0, 1}), fixed + divided / 2 + 3e-4 + floats);
  EXPECT_DOUBLE_EQ(step_seconds(question, unit, 1, {0, 1, 2}),
                   fixed + divided * 3 / 8 + 3e-4 * std::log2(6) / 2 + floats * 4 / 3)
      << "three of the eight shards";
  EXPECT_DOUBLE_EQ(step_seconds(question, unit, 2, {0, 1, 2, 3}),
                   fixed + (divided + more) / 4 + 3e-4 * 1.5 + 2 * floats * 1.5);
}

TEST(SetPlan, WhereTheEndIsTheSameLessGpuTimeIsBetter) {
  SetQuestion question = question_of({kH100, kH100, kH100}, 3, 1000);
  question.units[0].alike = -1;
  question.units[0].steps = 1e6;
  EXPECT_EQ(words_of(question, choose_set_plan(question).best), "1 agent on cuda:0, 2 on cuda:1");
  for (SetUnit& unit : question.units)
    for (RunCost& cost : unit.costs) cost.more = .01;  // together they would end soon enough, but take longer
  for (const PlannedRun& run : choose_set_plan(question).best.runs) EXPECT_EQ(run.agents, 1);
}

TEST(SetPlan, TogetherIsOneRunOnEachGpuThoughOneByOneWereFaster) {
  SetQuestion question = question_of({k3070, k3070}, 4);
  for (SetUnit& unit : question.units)
    for (RunCost& cost : unit.costs) cost.more = 1;
  EXPECT_EQ(choose_set_plan(question).best.runs.size(), 4U);
  question.together = SetQuestion::Together::kOn;
  EXPECT_LE(choose_set_plan(question).best.runs.size(), 2U);
}

TEST(SetPlan, AfterARunOfSeveralGpusEachMayHaveOthers) {
  SetQuestion question = question_of({k3070, k3070}, 2);
  question.units[0].alike = -1;
  for (RunCost& cost : question.units[0].costs) cost.divided = .05;
  const SetPlan best = choose_set_plan(question).best;
  EXPECT_EQ(best.runs[0].devices, (std::vector<int>{0, 1}));
  ASSERT_EQ(best.runs.size(), 2U);
  EXPECT_DOUBLE_EQ(best.runs[1].begin, best.runs[0].end);
  EXPECT_EQ(words_of(question, best), "1 agent on cuda:0 with cuda:1, 1 on cuda:0");
  EXPECT_NEAR(best.seconds, BruteForce(question, true).best(), 1e-6);
}

// Questions of all sorts, against every way there is. A sum takes so long that no run has several GPUs.
TEST(SetPlan, WhatIsCalledExactIs) {
  uint32_t state = 7;
  const auto draw = [&](double from, double to) {
    state = state * 1664525U + 1013904223U;
    return from + (to - from) * static_cast<double>(state >> 8) / (1U << 24);
  };
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<TestGpu> gpus;
    for (int d = 0, count = 2 + trial % 3; d < count; ++d) gpus.push_back({d, draw(20, 200), draw(20, 400)});
    SetQuestion question = question_of(gpus, 3 + trial % 3, draw(300, 100'000));
    for (SetDevice& device : question.devices) device.sum_seconds = 1, device.start_seconds = draw(0, 6);
    for (SetUnit& unit : question.units) {
      unit.alike = static_cast<int>(draw(-1, 1.99));
      unit.steps *= unit.alike == 1 ? 2 : 1;
      if (trial % 2 == 0)  // else those that are alike are equal
        for (RunCost& cost : unit.costs) cost = {cost.fixed, cost.divided * draw(.5, 2), cost.divided * draw(0, 1.5)};
    }
    const SetChoice choice = choose_set_plan(question);
    ASSERT_TRUE(choice.exact);
    ASSERT_NEAR(choice.best.seconds / BruteForce(question, false).best(), 1, 1e-4) << trial;
    if (choice.runner_up) {
      EXPECT_NE(words_of(question, *choice.runner_up), words_of(question, choice.best)) << "other sizes, or other GPUs";
    }
  }
}

TEST(SetPlan, WhatIsNotExactSaysHowFarItMayBeOff) {
  SetQuestion question = question_of(std::vector<TestGpu>(8, kH100), 30, 20'000);
  for (int u = 0; u < 30; ++u) {
    SetUnit& unit = question.units[static_cast<size_t>(u)];
    unit.alike = -1;
    for (RunCost& cost : unit.costs) cost = cost.scaled(1 + .013 * (u * u % 17));
  }
  const SetChoice choice = choose_set_plan(question), again = choose_set_plan(question);
  EXPECT_FALSE(choice.exact);
  EXPECT_GT(choice.gap(), 0);
  EXPECT_LT(choice.gap(), .5);
  EXPECT_LT(choice.least_seconds, choice.best.seconds);
  double shortest = 0;  // each has its own start, step and save, on eight GPUs
  for (const SetUnit& unit : question.units) shortest += run_seconds(question, unit, 1, {0}) / 8;
  EXPECT_LE(choice.least_seconds, shortest + question.seconds_beside) << "no more than is certain";
  EXPECT_EQ(choice.best.seconds, again.best.seconds) << "no clock decides";
  EXPECT_EQ(words_of(question, choice.best), words_of(question, again.best));
}

TEST(SetPlan, AnEnsembleOfEighteenOnEightGpusIsDecidedSoonAndWell) {
  SetQuestion question = question_of(std::vector<TestGpu>(8, kH100), 18, 100'000);
  for (int u = 0; u < 18; ++u) question.units[static_cast<size_t>(u)].alike = u % 3;
  const SetChoice choice = choose_set_plan(question);
  const double three = run_seconds(question, question.units[0], 3, {0});
  EXPECT_NEAR(choice.best.seconds - question.seconds_beside, three, .01 * three)
      << "with less on each there are not enough";
}

TEST(SetPlan, WhatIsDoneTakesNoTime) {
  SetQuestion question = question_of({k3060Ti, k3070}, 2);
  for (SetUnit& unit : question.units) unit.alike = -1, unit.steps = 0;
  EXPECT_EQ(choose_set_plan(question).best.seconds, question.seconds_beside);
}

}  // namespace
}  // namespace tandem
