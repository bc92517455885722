#include "engine/update.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace tandem {
namespace {

struct Plain : RecipeSettings {};

struct Fixture {
  explicit Fixture(RecipeSettings& settings) : state(1, 5) {
    model = std::make_shared<torch::nn::LinearImpl>(7, 3);
    state.add_model(model);
    state.seal(0, optimizer_states(settings.optimizer));
    update.emplace(settings, state, 8);
  }
  UpdateResult apply(const std::vector<float>& gradient, int64_t flag = 0) {
    std::vector<float> total(state.contribution_floats(), 0.0f);
    std::copy(gradient.begin(), gradient.end(), total.begin());
    return update->apply(total, flag);
  }
  std::vector<float> ramp() const {
    std::vector<float> g(state.parameter_floats(), 0.0f);
    for (const ParameterEntry& entry : state.parameter_entries())
      for (int64_t i = 0; i < entry.count; ++i) g[entry.offset + i] = 0.1f * static_cast<float>(i % 5 - 2) + 0.03f;
    return g;
  }
  JobState state;
  std::shared_ptr<torch::nn::LinearImpl> model;
  std::optional<Update> update;
};

// The outside judge: torch::optim on the same numbers.
template <class Optimizer, class Options>
void compare_with_torch(RecipeSettings settings, const Options& options) {
  Fixture f(settings);
  torch::nn::Linear theirs(7, 3);
  {
    torch::NoGradGuard no_grad;
    theirs->weight.copy_(f.model->weight);
    theirs->bias.copy_(f.model->bias);
  }
  Optimizer optimizer(theirs->parameters(), options);
  for (int step = 0; step < 20; ++step) {
    std::vector<float> g = f.ramp();
    for (float& x : g) x *= static_cast<float>(1 + step % 3);
    theirs->weight.mutable_grad() = torch::from_blob(g.data(), {3, 7}).clone();
    theirs->bias.mutable_grad() = torch::from_blob(g.data() + f.state.parameter_entries()[1].offset, {3}).clone();
    optimizer.step();
    f.apply(g);
  }
  EXPECT_TRUE(at::allclose(theirs->weight, f.model->weight, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(theirs->bias, f.model->bias, 1e-5, 1e-6));
}

TEST(Update, AdamFollowsTorch) {
  Plain s;
  s.optimizer.learning_rate = 0.01;
  s.optimizer.weight_decay = 0.1;
  s.optimizer.decay_vectors = true;
  compare_with_torch<torch::optim::Adam>(s, torch::optim::AdamOptions(0.01).weight_decay(0.1));
}

TEST(Update, AdamWFollowsTorch) {
  Plain s;
  s.optimizer.kind = "adamw";
  s.optimizer.learning_rate = 0.01;
  s.optimizer.weight_decay = 0.1;
  s.optimizer.decay_vectors = true;
  compare_with_torch<torch::optim::AdamW>(s, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
}

TEST(Update, SgdWithNesterovFollowsTorch) {
  Plain s;
  s.optimizer.kind = "sgd";
  s.optimizer.learning_rate = 0.05;
  s.optimizer.momentum = 0.9;
  s.optimizer.nesterov = true;
  compare_with_torch<torch::optim::SGD>(s, torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
}

TEST(Update, BiasesAreNotDecayedUnlessAsked) {
  Plain s;
  s.optimizer.kind = "adamw";
  s.optimizer.learning_rate = 0.5;
  s.optimizer.weight_decay = 0.5;
  Fixture f(s);
  const at::Tensor weight = f.model->weight.clone(), bias = f.model->bias.clone();
  f.apply(std::vector<float>(f.state.parameter_floats(), 0.0f));
  EXPECT_TRUE(at::allclose(f.model->weight, weight * 0.75));
  EXPECT_TRUE(at::equal(f.model->bias, bias));
}

TEST(Update, ClippingScalesTheWholeGradientToTheNorm) {
  Plain s;
  s.optimizer.kind = "sgd";
  s.optimizer.learning_rate = 1;
  s.clip_norm = 0.5;
  Fixture f(s);
  const at::Tensor before = f.model->weight.clone(), bias = f.model->bias.clone();
  const UpdateResult result = f.apply(f.ramp());
  EXPECT_GT(result.grad_norm, 0.5);
  const double moved = std::sqrt((f.model->weight - before).pow(2).sum().item<double>() +
                                 (f.model->bias - bias).pow(2).sum().item<double>());
  EXPECT_NEAR(moved, 0.5, 1e-5);
}

TEST(Update, ABadGradientIsSkippedAndNamedByShardAndTensor) {
  Plain s;
  Fixture f(s);
  f.update->begin_step(0);
  const at::Tensor before = f.model->weight.clone();
  const UpdateResult result = f.apply(f.ramp(), nan_flag(17, 1));
  EXPECT_TRUE(result.skipped);
  EXPECT_NE(result.note.find("'bias' in shard 17"), std::string::npos) << result.note;
  EXPECT_TRUE(at::equal(f.model->weight, before));
}

TEST(Update, RepeatedNanRollsBackThenLowersTheRateThenStopsWithCode7) {
  Plain s;
  s.nan.patience = 2;
  s.nan.max_rollbacks = 1;
  Fixture f(s);
  f.update->begin_step(0);
  const at::Tensor kept = f.model->weight.clone();
  const double rate = f.apply(f.ramp()).learning_rate;
  EXPECT_FALSE(at::equal(f.model->weight, kept));
  EXPECT_FALSE(f.apply(f.ramp(), nan_flag(0, 0)).rolled_back);
  EXPECT_TRUE(f.apply(f.ramp(), nan_flag(0, 0)).rolled_back);
  EXPECT_TRUE(at::equal(f.model->weight, kept));
  EXPECT_DOUBLE_EQ(f.apply(f.ramp()).learning_rate, rate / 2);
  f.apply(f.ramp(), nan_flag(0, 0));
  try {
    f.apply(f.ramp(), nan_flag(0, 0));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kGuardStopped);
  }
}

// Weights and biases with padding between them, and the optimizer's own numbers.
TEST(Update, ARollBackBringsBackEveryTensorAsItWasKept) {
  Plain s;
  s.optimizer.learning_rate = 0.01;
  s.nan.patience = 1;
  s.nan.rollback_every = 4;
  JobState state(1, 5);
  torch::nn::Sequential model(torch::nn::Linear(7, 3), torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})),
                              torch::nn::Linear(3, 2));
  state.add_model(model.ptr());
  state.seal(0, optimizer_states(s.optimizer));
  Update update(s, state, 8);
  const auto all = [&] {
    std::map<std::string, at::Tensor> tensors;
    for (const NamedTensor& t : state.model_tensors()) tensors[t.name] = t.tensor;
    for (const NamedTensor& t : state.replicated_state()) tensors[t.name] = t.tensor;
    return tensors;
  };
  const auto step = [&](int64_t number, float gradient) {
    update.begin_step(number);
    std::vector<float> total(state.contribution_floats(), 0.0f);
    for (const ParameterEntry& entry : state.parameter_entries())
      std::fill_n(total.begin() + entry.offset, entry.count, gradient);
    return update.apply(total, 0);
  };
  for (int64_t i = 0; i < 4; ++i) step(i, 0.5f);
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, tensor] : all()) kept[name] = tensor.clone();
  ASSERT_EQ(kept.size(), 8u);
  step(4, 0.25f);  // keeps, then moves
  at::NoGradGuard no_grad;
  for (auto& [name, tensor] : all()) tensor.add_(3);
  EXPECT_TRUE(step(5, std::numeric_limits<float>::quiet_NaN()).rolled_back);
  for (const auto& [name, tensor] : all()) EXPECT_TRUE(at::equal(tensor, kept.at(name))) << name;
  for (const NamedTensor& t : update.kept_state())
    EXPECT_TRUE(at::equal(t.tensor, kept.at(t.name.substr(t.name.find('.') + 1)))) << t.name;
}

TEST(Update, Fp16OverflowHalvesTheScaleAndGoodStepsDoubleItAndBothArePowersOfTwo) {
  Plain s;
  s.precision = "fp16";
  s.amp.initial_scale = 1000;  // rounded down to 512
  s.amp.growth_steps = 3;
  Fixture f(s);
  EXPECT_EQ(f.update->loss_scale(), 512);
  EXPECT_TRUE(f.apply(f.ramp(), nan_flag(0, 0)).skipped);
  EXPECT_EQ(f.update->loss_scale(), 256);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(f.apply(f.ramp()).skipped);
  EXPECT_EQ(f.update->loss_scale(), 512);
}

TEST(Update, ScalingByAPowerOfTwoChangesNoBit) {
  Plain plain, scaled;
  scaled.precision = "fp16";
  scaled.amp.initial_scale = 4096;
  Fixture a(plain), b(scaled);
  std::vector<float> g = a.ramp(), big = g;
  for (float& x : big) x *= 4096;
  for (int i = 0; i < 5; ++i) {
    a.apply(g);
    b.apply(big);
  }
  EXPECT_TRUE(at::equal(a.model->weight, b.model->weight));
}

TEST(Update, InfinityThatAppearsOnlyInTheSumIsSkippedToo) {
  Plain s;
  Fixture f(s);
  f.update->begin_step(0);
  std::vector<float> g = f.ramp();
  g[3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(f.apply(g).skipped);
}

}  // namespace
}  // namespace tandem
