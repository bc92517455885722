// PPO's pre-training, and a problem that only a memory solves.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "rl/ppo/policy_player.h"
#include "rl/ppo/ppo_test_loops.h"

namespace tandem {
namespace {

// ---- pre-training ----

// A table that goes round in 12 days; the next day's number is to be forecast. Actions do nothing.
class Seasons : public Environment {
 public:
  struct State {
    int32_t row, time;
  };
  static constexpr int32_t kRows = 120, kLength = 30;
  Seasons() {
    for (int i = 0; i < kRows; ++i) {
      const double angle = 2 * M_PI * i / 12;
      for (const double x : {std::cos(angle), std::sin(angle)}) rows_.push_back(static_cast<float>(x));
      next_.push_back(static_cast<float>(std::sin(2 * M_PI * (i + 1) / 12)));
    }
  }
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLength; }
  ObservationTable table() const override { return {rows_.data(), 2, kRows}; }
  ObservationTable forecast_targets() const override { return {next_.data(), 1, kRows}; }
  void table_rows(const std::byte* states, int32_t* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = reinterpret_cast<const State*>(states)[i].row;
  }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {
            static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), kRows - kLength)), 0};
  }
  void observe(const std::byte*, float* out, int64_t n) const override { std::fill(out, out + n, 0.0f); }
  void step(std::byte* states, const int32_t*, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      ++s.row;
      out[i] = {.reward = 1, .end = ++s.time == kLength ? End::kTruncated : End::kNone};
    }
  }

 private:
  std::vector<float> rows_, next_;
};

PpoSettings pretrained_ppo() {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 16;
  s.net.heads = 2;
  s.net.layers = 2;
  s.net.dropout = 0;
  s.window = 3;
  s.optimizer.learning_rate = 1e-2;
  s.pretrain_iterations = 12;
  return s;
}

at::Tensor weight_of(TrainLoop& loop, const std::string& name) {
  for (const NamedTensor& t : loop.state().model_tensors())
    if (t.name == name) return t.tensor.clone();
  throw std::logic_error("no weight " + name);
}

TEST(PpoPretraining, LearnsToForecastAndLeavesPolicyAndValueAlone) {
  const PpoSettings s = pretrained_ppo();
  const auto loop = ppo_loop(s, std::make_unique<Seasons>());
  const at::Tensor policy = weight_of(*loop, "policy.0.weight"), value = weight_of(*loop, "value.0.weight"),
                   lstm = weight_of(*loop, "lstm0.weight_ih_l0");
  const double first = metric_of(loop->step(), "forecast_loss");
  StepRecord record;
  while (loop->steps_done() < s.pretrain_updates()) record = loop->step();
  EXPECT_LT(metric_of(record, "forecast_loss"), first / 20);
  EXPECT_TRUE(at::equal(weight_of(*loop, "policy.0.weight"), policy));
  EXPECT_TRUE(at::equal(weight_of(*loop, "value.0.weight"), value));
  EXPECT_FALSE(at::equal(weight_of(*loop, "lstm0.weight_ih_l0"), lstm));
  const at::Tensor forecast = weight_of(*loop, "forecast0.weight");
  record = loop->step();  // PPO from here on
  EXPECT_TRUE(std::isnan(metric_of(record, "forecast_loss")));
  EXPECT_FALSE(at::equal(weight_of(*loop, "value.0.weight"), value));
}

TEST(PpoPretraining, HasOneDigestForEveryPlanAndPass) {
  PpoSettings s = pretrained_ppo();
  s.pretrain_iterations = 1;
  const auto digest = [&](const std::vector<double>& workers) {
    const auto loop = ppo_loop(s, std::make_unique<Seasons>(), workers);
    while (loop->steps_done() < s.pretrain_updates() + 5) loop->step();
    return digest_of(*loop);
  };
  const std::string one = digest({1});
  EXPECT_EQ(digest({2, 1}), one);
  s.shards_per_pass = 1;
  EXPECT_EQ(digest({1}), one);
}

TEST(PpoPretraining, IsRefusedWhereThereIsNothingToForecast) {
  PpoSettings s = pretrained_ppo();
  EXPECT_THROW(ppo_loop(s, std::make_unique<Hallway>(false)), ConfigError);
  s.net.kind = "mlp";
  s.window = 1;
  EXPECT_THROW(s.check(), ConfigError);
}

// ---- memory ----

// The first observation tells which of two actions will be right, five steps later; those between tell nothing.
class Recall : public Environment {
 public:
  struct State {
    int32_t sign, time;
  };
  static constexpr int32_t kDelay = 5;
  int64_t observation_size() const override { return 2; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kDelay + 1; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), 2)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) {
      const State& s = reinterpret_cast<const State*>(states)[i];
      out[2 * i] = s.time == 0 ? (s.sign ? 1.0f : -1.0f) : 0.0f;
      out[2 * i + 1] = s.time == kDelay ? 1.0f : 0.0f;
    }
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      const bool asked = s.time++ == kDelay;
      out[i] = {.reward = asked ? (actions[i] == s.sign ? 1.0f : -1.0f) : 0.0f,
                .end = asked ? End::kTerminated : End::kNone};
    }
  }
};

// Whoever forgets gets 0 on average, whatever it does.
double return_of_recall(int64_t window, int64_t iterations) {
  PpoSettings s = small_ppo();
  s.environments = 16;
  s.horizon = 12;
  s.batch_size = 192;
  s.net.kind = "clstm";
  s.net.width = 16;
  s.net.heads = 2;
  s.net.layers = 1;
  s.net.dropout = 0;
  s.window = window;
  s.gamma = 0.9;
  s.scale_rewards = false;
  s.optimizer.learning_rate = 5e-3;
  const auto loop = ppo_loop(s, std::make_unique<Recall>());
  while (loop->steps_done() < iterations * s.updates_per_rollout()) loop->step();
  // What was learned, at play without exploration.
  constexpr int64_t kGames = 64;
  const Recall game;
  std::vector<Recall::State> states(kGames);
  auto* const bytes = reinterpret_cast<std::byte*>(states.data());
  game.reset(bytes, kGames, {.seed = 99}, nullptr);
  PolicyPlayer player(dynamic_cast<Ppo&>(loop->recipe()).net(), game, window, kGames, Recall::kDelay + 1);
  std::vector<Outcome> outcomes(kGames);
  std::vector<int32_t> chosen(kGames);
  for (int step = 0; step <= Recall::kDelay; ++step) {
    const at::Tensor actions = player.act(bytes);
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int32_t>(actions.data_ptr<float>()[i]);
    game.step(bytes, chosen.data(), outcomes.data(), kGames, {});
  }
  double sum = 0;
  for (const Outcome& one : outcomes) sum += one.reward;
  return sum / kGames;
}

TEST(PpoMemory, SolvesWhatNoMemorylessPolicyCan) {
  EXPECT_GT(return_of_recall(Recall::kDelay + 1, 50), 0.95);
  EXPECT_LT(return_of_recall(Recall::kDelay, 20), 0.4) << "a window that is a step too short sees nothing";
}

}  // namespace
}  // namespace tandem
