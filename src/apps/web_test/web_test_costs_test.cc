#include "apps/web_test/web_test_costs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/errors.h"
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
    EXPECT_TRUE(choice.exact) << hardware;
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
  known.steps["NVIDIA GeForce RTX 3070"] = {{settings.agents().front(), {1e-3, 1e-3, 5e-4}}};
  EXPECT_NEAR(agent_cost(settings, device, known).alone(), 2e-3, 1e-9);
  EXPECT_EQ(source_of_costs({device}, known), "trials of `plan` on these GPUs");
  EXPECT_EQ(source_of_costs({device}, {}), "the GPUs' data sheets");
  EXPECT_NE(source_of_costs({gpu_named("NVIDIA Something", 0)}, {}).find("is in no book"), std::string::npos);
}

TEST(WebTestCosts, AGpuThatIsTooSlowIsLeftOut) {
  SetKnown known;
  for (const std::string& agent : WebAgentSettings::all_agents())
    known.steps["RTX 3060 Ti"][agent] = {1, 1, 1};  // seconds a step: something is wrong with it
  const SetQuestion question = six_on(machine("3060ti+2x3070"), known);
  EXPECT_EQ(choose_set_plan(question).best.devices(), (std::vector<int>{1, 2}));
}

// Four times as long by its settings (a larger batch or net) or by what it does: the plan must know which agent it is.
TEST(WebTestCosts, EachAgentCostsWhatItWasMeasuredToCost) {
  const std::vector<DeviceSpec> gpus = machine("2x3070");
  SetKnown known;
  for (const std::string& agent : WebAgentSettings::all_agents())
    known.steps["RTX 3070"][agent] = RunCost{1e-3, 1e-3, 6e-4}.scaled(agent == "analysis" ? 8 : 1);
  SetQuestion question;
  question.devices = set_devices(gpus, WebTestSettings(), known);
  for (const AgentJob& job : jobs_of_agents(WebTestSettings(), 2)) {
    WebAgentSettings own;
    own.agent = job.agents.front();
    question.units.push_back(unit_of(job, own, 15'000, gpus, known));
    EXPECT_NEAR(question.units.back().costs[1].alone(), own.agent == "analysis" ? 16e-3 : 2e-3, 1e-12) << own.agent;
  }
  std::map<int, std::set<std::string>> by_gpu;
  for (const PlannedRun& run : choose_set_plan(question).best.runs)
    for (const int unit : run.units) by_gpu[run.devices.front()].insert(question.units[static_cast<size_t>(unit)].name);
  ASSERT_EQ(by_gpu.size(), 2U);
  for (const auto& [gpu, names] : by_gpu)
    EXPECT_EQ(names.size(), names.contains("analysis") ? 1U : 5U) << "it takes longer than the five others";
  WebAgentSettings two;
  two.agent = "analysis,evolution";
  EXPECT_NEAR(agent_cost(two, gpus[0], known).alone(), 9e-3, 1e-12) << "a run that is there: the mean of its agents";
  known.steps["RTX 3070"].erase("evolution");
  EXPECT_LT(agent_cost(two, gpus[0], known).alone(), 1e-3) << "not all were tried: by the data sheet";
  EXPECT_TRUE(all_tried_on(gpus, known, {"analysis", "requirements"}));
  EXPECT_FALSE(all_tried_on(gpus, known, {"analysis", "evolution"}));
  EXPECT_FALSE(all_tried_on(machine("3070+3060ti"), known, {"analysis"}));
}

TEST(WebTestCosts, AGpuOfNoBookHasTheMemoryThatTheDriverSays) {
  std::vector<DeviceSpec> gpus = {gpu_named("NVIDIA Something", 0), gpu_named("NVIDIA Something", 1)};
  gpus[1].gpu.uuid = "other";
  SetKnown known;
  known.memory["uuid"] = {.total = 4e9, .free = 3.9e9};
  const std::vector<SetDevice> devices = set_devices(gpus, WebTestSettings(), known);
  EXPECT_NEAR(devices[0].memory_bytes, .9 * 4e9 - kContextBytes, 64e6);
  EXPECT_EQ(devices[1].memory_bytes, 0) << "of which nobody says anything";
}

TEST(WebTestCosts, AnAgentThatFitsOnNoGpuIsRefusedWithFigures) {
  SetKnown known;
  known.memory["uuid"] = {.total = 4e9, .free = 3.9e9};
  SetQuestion question = six_on({gpu_named("NVIDIA Something", 0)}, known);
  EXPECT_NO_THROW(refuse_what_fits_nowhere(question, .9));
  const int fit = static_cast<int>(question.devices[0].memory_bytes / question.units[0].memory_bytes / kMemoryMargin);
  ASSERT_GT(fit, 0);
  ASSERT_LT(fit, 6);
  EXPECT_EQ(memory_words(question), fmt::format("room in one run for: cuda:0 {} of 6 agents ({:.1f} GB)", fit,
                                                question.devices[0].memory_bytes / 1e9));
  for (const PlannedRun& run : choose_set_plan(question).best.runs) EXPECT_LE(run.agents, fit) << "so it is cut";
  question.units[3].memory_bytes = 5e9;
  try {
    refuse_what_fits_nowhere(question, .9);
    FAIL() << "5 GB on 4 GB";
  } catch (const ConfigError& refused) {
    EXPECT_NE(std::string(refused.what()).find(question.units[3].name + " does not fit on the GPU"), std::string::npos);
    EXPECT_NE(std::string(refused.why()).find("5.0 GB; cuda:0 has 2.9 GB"), std::string::npos) << refused.why();
    EXPECT_NE(std::string(refused.todo()).find("capacity"), std::string::npos);
  }
  EXPECT_EQ(memory_words(six_on(machine("H200"))), "");
}

TEST(WebTestCosts, ASlowedGpuAndAttentionTakeLonger) {
  WebAgentSettings settings;
  DeviceSpec gpu = gpu_named("RTX 3070", 0);
  const double plain = agent_cost(settings, gpu, {}).alone();
  gpu.speed = .5;
  EXPECT_DOUBLE_EQ(agent_cost(settings, gpu, {}).alone(), 2 * plain);
  gpu.speed = 1;
  settings.net.attention = true;
  EXPECT_DOUBLE_EQ(agent_cost(settings, gpu, {}).alone(), 3.5 * plain);
}

TEST(WebTestCosts, ARunSavesItsReplayAndStartsAsItDidBefore) {
  const std::vector<DeviceSpec> gpus = machine("3070+4090");
  const SetUnit unit = unit_of({{"analysis"}}, WebAgentSettings(), 10, gpus, {});
  EXPECT_NEAR(unit.save_seconds, 1.36, .1) << "545 MB and the weights, at 400 MB a second";
  const JobShape shape = shape_of_agent(WebAgentSettings());
  EXPECT_DOUBLE_EQ(shape.replicated_bytes(), 4 * shape.weights_bytes) << "two moments of Adam, and the target network";
  SetKnown known;
  known.start_seconds = 7;
  known.speeds["RTX 3070"] = 1e12;
  EXPECT_EQ(set_devices(gpus, WebTestSettings(), known)[0].start_seconds, 7);
  EXPECT_EQ(set_devices(gpus, WebTestSettings(), known)[1].start_seconds, kGpuStartSeconds) << "it was another one's";
}

TEST(WebTestCosts, WhoMayShareARun) {
  WebTestSettings settings;
  EXPECT_TRUE(can_share(settings));
  settings.together = "off";
  EXPECT_FALSE(can_share(settings));
  const auto with = [](auto change) {
    WebTestSettings one;
    change(one);
    return can_share(one);
  };
  EXPECT_FALSE(with([](WebTestSettings& one) { one.precision = "fp16"; })) << "a loss scale each";
  EXPECT_TRUE(with([](WebTestSettings& one) { one.precision = "bf16"; }));
  EXPECT_FALSE(with([](WebTestSettings& one) { one.net.attention = true; }));
  EXPECT_FALSE(with([](WebTestSettings& one) { one.from = "run"; })) << "weights of one agent";
  EXPECT_FALSE(with([](WebTestSettings& one) { one.experience.files = "a.jsonl"; }));
  EXPECT_FALSE(with([](WebTestSettings& one) { one.strategy = "ddp"; }));
  EXPECT_THROW(with([](WebTestSettings& one) { one.together = "on", one.from = "run"; }), ConfigError);
  EXPECT_THROW(with([](WebTestSettings& one) { one.together = "on", one.precision = "fp16"; }), ConfigError);
}

TEST(WebTestCosts, WhatKeepsAgentsApartAndWhoIsAStrangerIsSaidOnlyWhereItMatters) {
  SetKnown known;
  known.memory["uuid"] = {.total = 4e9, .free = 3.9e9};
  const DeviceSpec stranger = gpu_named("NVIDIA Something", 0);
  SetQuestion question = six_on({stranger}, known);
  question.together = SetQuestion::Together::kOff;
  EXPECT_EQ(memory_words(question), "") << "they would be apart anyway";
  known.speeds["NVIDIA Something"] = 1e12;
  EXPECT_EQ(source_of_costs({stranger}, known), "earlier runs on these GPUs") << "it was measured: no book is needed";
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
