// rl/ppo/ppo_test_loops.h -- for tests of PPO: a small learner, and a problem that it solves.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "rl/ppo/ppo.h"

namespace tandem {

inline PpoSettings small_ppo() {
  PpoSettings s;
  s.shards = 4;
  s.environments = 2;
  s.horizon = 16;
  s.batch_size = 32;
  s.update_epochs = 4;
  s.net.hidden = {16};
  s.optimizer.learning_rate = 3e-3;
  s.seed = 3;
  return s;
}

inline std::unique_ptr<TrainLoop> ppo_loop(const PpoSettings& s, std::unique_ptr<Environment> environment,
                                           const std::vector<double>& workers = {1}) {
  set_determinism();
  s.check();
  return std::make_unique<TrainLoop>(s, std::make_unique<Ppo>(s, std::move(environment)),
                                     ShardPlan::balance(static_cast<int>(s.shards), workers));
}

inline at::Tensor field_of(TrainLoop& loop, const std::string& name, int shard = 0) {
  for (const NamedTensor& t : loop.state().shard_state(shard))
    if (t.name.find(name) != std::string::npos) return t.tensor;
  throw std::logic_error("no field " + name);
}
// Step right to the end: reward 1 and over. Every step costs 0.01. After kLimit steps an episode is truncated.
class Hallway : public Environment {
 public:
  struct State {
    int32_t cell, time;
  };
  static constexpr int32_t kCells = 5, kLimit = 20;
  explicit Hallway(bool continuous) : continuous_(continuous) {}
  int64_t observation_size() const override { return kCells; }
  int64_t actions() const override { return continuous_ ? 0 : 2; }
  int64_t action_size() const override { return continuous_ ? 1 : 0; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLimit; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {
            static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), kCells - 1)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)
      for (int32_t c = 0; c < kCells; ++c)
        out[i * kCells + c] = reinterpret_cast<const State*>(states)[i].cell == c ? 1.0f : 0.0f;
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = move(reinterpret_cast<State*>(states)[i], actions[i] == 1);
  }
  void step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                       const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = move(reinterpret_cast<State*>(states)[i], actions[i] > 0.5f);
  }
  static Outcome move(State& s, bool right) {
    s.cell = std::max(0, s.cell + (right ? 1 : -1));
    const bool there = s.cell == kCells - 1;
    return {.reward = there ? 1.0f : -0.01f,
            .end = there                ? End::kTerminated
                   : ++s.time == kLimit ? End::kTruncated
                                        : End::kNone};
  }

 private:
  bool continuous_;
};

inline double metric_of(const StepRecord& record, const std::string& name) {
  for (const auto& [key, value] : record.metrics)
    if (key == name) return value;
  return NAN;
}
}  // namespace tandem
