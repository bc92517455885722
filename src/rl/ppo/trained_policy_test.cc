#include "rl/ppo/trained_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/errors.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

using PolicyTensors = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;

SafetensorsFile policy_file(const PolicyTensors& tensors) {
  const TempDir dir;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, DType::kF32, tensor.first, std::as_bytes(std::span(tensor.second))});
  write_safetensors(FileSystem::real(), dir.path() / "model.safetensors", views);
  return SafetensorsFile::read(FileSystem::real(), dir.path() / "model.safetensors");
}

// 2 numbers -> 3 hidden -> 2 outputs.
PolicyTensors small_policy() {
  return {{"policy.0.weight", {{3, 2}, {0.5f, -1, 2, 0.25f, -0.75f, 1}}},
          {"policy.0.bias", {{3}, {0.1f, -0.2f, 0.3f}}},
          {"policy.2.weight", {{2, 3}, {1, -1, 0.5f, 0.25f, 2, -3}}},
          {"policy.2.bias", {{2}, {0.05f, -0.05f}}},
          {"value.0.weight", {{1, 2}, {9, 9}}},
          {"value.0.bias", {{1}, {9}}}};
}

void expect_small(TrainedPolicy::Activation activation, double (*of)(double)) {
  const TrainedPolicy policy(policy_file(small_policy()), activation, "it");
  const float seen[4] = {0.7f, -0.4f, -1.5f, 0.9f};
  float both[4], alone[2];
  policy.outputs(seen, 2, both);
  for (int r = 0; r < 2; ++r) {
    const double x = seen[2 * r], y = seen[2 * r + 1];
    const double h[3] = {of(0.5 * x - y + 0.1), of(2 * x + 0.25 * y - 0.2), of(-0.75 * x + y + 0.3)};
    EXPECT_NEAR(both[2 * r], h[0] - h[1] + 0.5 * h[2] + 0.05, 2e-6);
    EXPECT_NEAR(both[2 * r + 1], 0.25 * h[0] + 2 * h[1] - 3 * h[2] - 0.05, 2e-6);
    policy.outputs(seen + 2 * r, 1, alone);
    EXPECT_EQ(alone[0], both[2 * r]) << "alone and in a batch: the same bits";
    EXPECT_EQ(alone[1], both[2 * r + 1]);
  }
}

TEST(TrainedPolicy, GivesWhatItsLayersGive) {
  expect_small(TrainedPolicy::Activation::kTanh, [](double x) { return std::tanh(x); });
  expect_small(TrainedPolicy::Activation::kRelu, [](double x) { return x > 0 ? x : 0; });
}

TEST(TrainedPolicy, ItsActionsAreContinuousWhereItHasADeviation) {
  PolicyTensors tensors = small_policy();
  const TrainedPolicy discrete(policy_file(tensors), TrainedPolicy::Activation::kTanh, "it");
  EXPECT_EQ(discrete.observation_size(), 2);
  EXPECT_EQ(discrete.actions(), 2);
  EXPECT_EQ(discrete.action_size(), 0);
  tensors["log_deviation"] = {{2}, {0, 0}};
  const TrainedPolicy continuous(policy_file(tensors), TrainedPolicy::Activation::kTanh, "it");
  EXPECT_EQ(continuous.actions(), 0);
  EXPECT_EQ(continuous.action_size(), 2);
}

// Two actions; the one that the policy likes best is possible where the first number is above 0.
class OneForbidden : public Environment {
 public:
  int64_t observation_size() const override { return 2; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return 2 * sizeof(float); }
  int64_t max_episode_steps() const override { return 1; }
  void reset(std::byte*, int64_t, const RandomKey&, const Outcome*) const override {}
  void observe(const std::byte* states, float* out, int64_t n) const override {
    std::memcpy(out, states, static_cast<size_t>(n) * 2 * sizeof(float));
  }
  void step(std::byte*, const int32_t*, Outcome*, int64_t, const RandomKey&) const override {}
  std::vector<ActionRule> action_rules() const override { return {{0, 0, 10}, {}}; }
};

TEST(TrainedPolicy, PlaysNoActionThatTheRulesForbid) {
  PolicyTensors tensors = small_policy();
  tensors["policy.2.weight"].second.assign(6, 0);
  tensors["policy.2.bias"].second = {1, 0};  // always the first
  const TrainedPolicy policy(policy_file(tensors), TrainedPolicy::Activation::kTanh, "it");
  const OneForbidden environment;
  const float states[4] = {0.5f, 1, -0.5f, 1};
  int32_t chosen[2] = {-1, -1};
  greedy_policy(environment, policy)(reinterpret_cast<const std::byte*>(states), 2, 0, {.discrete = chosen});
  EXPECT_EQ(chosen[0], 0);
  EXPECT_EQ(chosen[1], 1);
}

TEST(TrainedPolicy, WhatIsNoPolicyIsRefusedByTheTensorThatIsWrong) {
  const auto refused = [](const PolicyTensors& tensors, const std::string& word) {
    try {
      TrainedPolicy(policy_file(tensors), TrainedPolicy::Activation::kTanh, "it");
      ADD_FAILURE() << "accepted; expected a word of " << word;
    } catch (const CheckpointError& error) {
      EXPECT_NE(error.why().find(word), std::string::npos) << error.why();
    }
  };
  PolicyTensors tensors = small_policy();
  tensors.erase("policy.0.weight");
  refused(tensors, "policy.0.weight");
  tensors = small_policy();
  tensors["policy.2.weight"] = {{2, 4}, std::vector<float>(8)};
  refused(tensors, "takes 4 numbers, not 3");
  tensors = small_policy();
  tensors["policy.2.bias"] = {{3}, std::vector<float>(3)};
  refused(tensors, "policy.2.bias");
  tensors = small_policy();
  tensors["log_deviation"] = {{1}, {0}};
  refused(tensors, "log_deviation");
}

}  // namespace
}  // namespace tandem
