#include "apps/web_test/web_test_costs.h"

#include <gtest/gtest.h>

#include "forecast/set_costs.h"

namespace tandem {
namespace {

DeviceSpec gpu_named(const std::string& name, int index) {
  return {.kind = DeviceSpec::Kind::kCuda, .index = index, .gpu = {"uuid", name}};
}

std::vector<DeviceSpec> machine(const std::string& hardware) {
  std::vector<DeviceSpec> gpus;
  for (const GpuModel* model : parse_hardware(hardware))
    gpus.push_back(gpu_named(std::string(model->name), static_cast<int>(gpus.size())));
  return gpus;
}

// The six with their default settings.
SetQuestion six_on(const std::vector<DeviceSpec>& gpus, const SetKnown& known = {}) {
  const WebTestSettings settings;
  SetQuestion question;
  question.devices = set_devices(gpus, settings, known);
  for (const AgentJob& job : jobs_of_agents(settings, static_cast<int>(gpus.size()))) {
    question.units.push_back(unit_of(job, WebAgentSettings(), 15'000, gpus, known));
    question.units.back().alike = 0;
  }
  return question;
}

// Every way to deal six equal agents out to GPUs, and each GPU's share into runs: numbers of agents alone decide.
double best_of_all(const SetQuestion& question, size_t device = 0, int left = 6, double end = 0) {
  if (device == question.devices.size()) return left == 0 ? end : 1e300;
  double best = 1e300;
  const auto share = [&](auto&& self, int most, int rest, double seconds) -> void {
    best = std::min(best, best_of_all(question, device + 1, rest, std::max(end, seconds)));
    for (int agents = std::min(most, rest); agents >= 1; --agents) {
      const RunCost& cost = question.units[0].costs[device];
      const double step = cost.fixed + cost.divided + (agents - 1) * cost.more;
      self(self, agents, rest - agents,
           seconds + question.devices[device].start_seconds + 15'000 * step + agents * question.units[0].save_seconds);
    }
  };
  share(share, left, left, 0);
  return best;
}

TEST(WebTestCosts, OnTheGuidesMachinesTheDefaultIsTheBestOfAllWaysAndNeverSlowerThanOneGpu) {
  for (const char* hardware : {"3060ti+2x3070", "6000ada+4090", "4x2080ti", "4xH100", "8xH100", "3xB200"}) {
    SetQuestion question = six_on(machine(hardware));
    const SetChoice choice = choose_set_plan(question);
    EXPECT_TRUE(choice.all_tried) << hardware;
    EXPECT_LE(choice.best.seconds, 1.03 * best_of_all(question)) << hardware << words_of(question, choice.best);
    EXPECT_GE(choice.best.seconds, .999 * best_of_all(question)) << hardware;
    for (size_t d = 0; d < question.devices.size(); ++d) {
      const double alone = run_seconds(question, question.units[0], 6, {static_cast<int>(d)});
      EXPECT_LT(choice.best.seconds, alone) << hardware;
    }
  }
}

TEST(WebTestCosts, ThreeUnequalGpusHaveTwoAgentsEach) {
  const SetQuestion question = six_on(machine("3060ti+2x3070"));
  EXPECT_EQ(words_of(question, choose_set_plan(question).best), "2 agents on cuda:0, 2 on cuda:1, 2 on cuda:2");
}

TEST(WebTestCosts, WhatWasMeasuredGoesBeforeTheDataSheet) {
  const WebAgentSettings settings;
  const DeviceSpec device = gpu_named("NVIDIA GeForce RTX 3070", 0);
  SetKnown known;
  known.speeds["NVIDIA GeForce RTX 3070"] = flops_of_step(settings, true) / 1e-3;
  EXPECT_NEAR(agent_cost(settings, device, known).alone(), 1e-3, 1e-9);
  known.steps["NVIDIA GeForce RTX 3070"] = {1e-3, 1e-3, 5e-4};
  EXPECT_NEAR(agent_cost(settings, device, known).alone(), 2e-3, 1e-9);
  EXPECT_EQ(source_of_costs({device}, known), "trials of `plan` on these GPUs");
  EXPECT_EQ(source_of_costs({device}, {}), "the GPUs' data sheets");
  EXPECT_NE(source_of_costs({gpu_named("NVIDIA Something", 0)}, {}).find("is in no book"), std::string::npos);
}

TEST(WebTestCosts, AGpuThatIsTooSlowIsLeftOut) {
  SetKnown known;
  known.steps["RTX 3060 Ti"] = {1, 1, 1};  // seconds a step: something is wrong with it
  const SetQuestion question = six_on(machine("3060ti+2x3070"), known);
  EXPECT_EQ(choose_set_plan(question).best.devices(), (std::vector<int>{1, 2}));
}

TEST(WebTestCosts, GroupingIsByForecastOnGpusThatAreNamedOnce) {
  WebTestSettings settings;
  EXPECT_TRUE(plans_by_forecast(settings, {gpu_named("H200", 0), gpu_named("RTX 3070", 1)}));
  EXPECT_FALSE(plans_by_forecast(settings, {gpu_named("H200", 0), gpu_named("H200", 0)}));
  EXPECT_FALSE(plans_by_forecast(settings, {{.index = 0}, {.index = 1}}));
  settings.strategy = "ddp";
  EXPECT_FALSE(plans_by_forecast(settings, {gpu_named("H200", 0)}));
}

}  // namespace
}  // namespace tandem
