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
    const RunCost& cost = unit.costs[static_cast<size_t>(devices[g].front())];
    const SetDevice& device = question.devices[static_cast<size_t>(devices[g].front())];
    const auto count = static_cast<double>(devices[g].size());
    double step = cost.fixed + (cost.divided + cost.more * (agents - 1)) * std::ceil(unit.shards / count) / unit.shards;
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
  EXPECT_TRUE(choice.all_tried);
  const BruteForce force(question, several);
  EXPECT_GT(force.tried(), 100);
  EXPECT_LE(choice.best.seconds, 1.03 * force.best()) << words_of(question, choice.best);
  EXPECT_GE(choice.best.seconds, .999 * force.best()) << "the same model";
  const auto alike = [&](const SetUnit& unit) { return unit.alike == 0; };
  for (size_t d = 0; d < question.devices.size() && std::ranges::all_of(question.units, alike); ++d) {
    std::vector<int> all(question.units.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_LE(choice.best.seconds, end_of(question, {all}, {{static_cast<int>(d)}})) << "never slower than one alone";
  }
  ASSERT_TRUE(choice.runner_up.has_value());
  EXPECT_GE(choice.runner_up->seconds, .999 * choice.best.seconds);
  EXPECT_NE(words_of(question, *choice.runner_up), words_of(question, choice.best));
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
  EXPECT_TRUE(choice.all_tried);
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
  for (SetUnit& unit : question.units) unit.memory_bytes = 2e9;  // three fit
  const SetPlan best = choose_set_plan(question).best;
  for (const PlannedRun& run : best.runs) EXPECT_LE(run.agents, 3);
  EXPECT_EQ(best.runs.size(), 2U);
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
