#include "apps/web_test/web_test_jobs.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace tandem {
namespace {

DeviceSpec gpu(int index, const std::string& model = "H200") {
  return {.kind = DeviceSpec::Kind::kCuda, .index = index, .gpu = {"uuid", model}};
}

std::vector<std::string> names(const std::vector<AgentJob>& jobs) {
  std::vector<std::string> names;
  for (const AgentJob& job : jobs) names.push_back(job.name());
  return names;
}

TEST(Together, OneGpuTrainsAllAgentsInOneRunByItself) {
  const WebTestSettings settings;
  EXPECT_EQ(batched_runs(settings, {gpu(0)}), 1);
  EXPECT_EQ(names(side_by_side(jobs_of_agents(settings, 1), 1)), std::vector<std::string>{"requirements+5"});
}

TEST(Together, EqualGpusThatAreFewerThanAgentsTakeARunEach) {
  const WebTestSettings settings;
  EXPECT_EQ(batched_runs(settings, {gpu(0), gpu(1)}), 2);
  EXPECT_EQ(names(side_by_side(jobs_of_agents(settings, 2), 2)),
            (std::vector<std::string>{"requirements+2", "generation+2"}));
  EXPECT_EQ(batched_runs(settings, {gpu(0), gpu(0)}), 1) << "two workers of one GPU";
  std::vector<DeviceSpec> many;
  for (int i = 0; i < 6; ++i) many.push_back(gpu(i));
  EXPECT_EQ(batched_runs(settings, many), 0) << "one GPU for each";
}

TEST(Together, IsLeftWhereItBringsNothingOrCantBe) {
  const auto runs = [](auto change, const std::vector<DeviceSpec>& devices) {
    WebTestSettings settings;
    change(settings);
    return batched_runs(settings, devices);
  };
  const auto as_it_is = [](WebTestSettings&) {};
  EXPECT_EQ(runs(as_it_is, {{.index = 0}, {.index = 1}}), 0) << "cores";
  EXPECT_EQ(runs(as_it_is, {gpu(0), gpu(1, "3060")}), 0) << "GPUs of unequal speed";
  EXPECT_EQ(runs([](WebTestSettings& s) { s.together = "off"; }, {gpu(0)}), 0);
  EXPECT_EQ(runs([](WebTestSettings& s) { s.strategy = "ddp"; }, {gpu(0)}), 0);
  for (const char* precision : {"bf16", "tf32"})
    EXPECT_EQ(runs([&](WebTestSettings& s) { s.precision = precision; }, {gpu(0)}), 1) << precision;
  EXPECT_EQ(runs([](WebTestSettings& s) { s.precision = "fp16"; }, {gpu(0)}), 0) << "a loss scale is one agent's";
  EXPECT_EQ(runs([](WebTestSettings& s) { s.net.attention = true; }, {gpu(0)}), 0);
  EXPECT_EQ(runs([](WebTestSettings& s) { s.experience.files = "a.jsonl"; }, {gpu(0)}), 0) << "it is one agent's";
  EXPECT_EQ(runs([](WebTestSettings& s) { s.agents = "analysis"; }, {gpu(0)}), 0);
}

TEST(Together, AskedForItIsDoneAnywhereOrRefused) {
  WebTestSettings settings;
  settings.together = "on";
  EXPECT_EQ(batched_runs(settings, {{.index = 0}, {.index = 1}}), 1);
  settings.precision = "fp16";
  EXPECT_THROW(batched_runs(settings, {gpu(0)}), ConfigError);
  settings.precision = "fp32";
  settings.from = "weights.safetensors";
  EXPECT_THROW(batched_runs(settings, {gpu(0)}), ConfigError);
}

TEST(Together, AnEnsemblesMembersOfOneKindAreSideBySide) {
  WebTestSettings settings;
  settings.strategy = "ensemble";
  std::vector<AgentJob> bold;
  for (const AgentJob& job : jobs_of_agents(settings, 1))
    if (job.kind == "aggressive") bold.push_back(job);
  const AgentJob all = side_by_side(bold, 1).front();
  EXPECT_EQ(all.name(), "requirements+5-aggressive");
  EXPECT_EQ(all.member_name("analysis"), "analysis-aggressive");
  EXPECT_EQ(all.own, bold.front().own);
}

TEST(Together, OnAGpuAnAgentMoreCostsASeventh) {
  WebAgentSettings one, six;
  one.agent = "execution";
  six.agent = "all";
  EXPECT_NEAR(flops_of_step(six, true) / flops_of_step(one, true), 1.75, 0.1);
  EXPECT_NEAR(flops_of_step(six, false) / flops_of_step(one, false), 6, 0.3);
}

TEST(WebTestSettings, ExperienceWithoutATrainedSetIsRefusedWithBothWays) {
  WebTestSettings settings;
  settings.experience.files = "a.jsonl";
  try {
    settings.check();
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    const std::string text = error.todo();
    EXPECT_NE(text.find("--from RUN"), std::string::npos) << text;
    EXPECT_NE(text.find("web-agent"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tandem
