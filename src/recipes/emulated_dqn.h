// recipes/emulated_dqn.h -- for tests: the DQN's kernels, compiled for the CPU and driven by the engine as on a GPU
// (kernels/gpu/emulator.h).
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/determinism.h"
#include "engine/emulated_gpu.h"
#include "engine/train_loop.h"
#include "recipes/web_agent_settings.h"
#include "recipes/web_gpu_environment.h"
#include "rl/dqn/dqn.h"

namespace tandem {

// Calls of the kernels' launchers since somebody set them to zero.
struct QueuedCalls {
  std::atomic<int> act = 0, serve = 0, receive = 0, learn = 0, pack = 0;
  void clear() { act = serve = receive = learn = pack = 0; }
};
inline QueuedCalls queued_calls;

// With the DQN's kernels, which run thread by thread. Nothing is captured.
class EmulatedDqnGpu : public EmulatedGpu {
 public:
  const KernelTables& kernel_tables() const override;  // dqn_on_gpu_test.cc
};

class EmulatedDqn : public ::testing::Test {
 protected:
  EmulatedDqn() {
    set_determinism();
    use_gpu(std::make_unique<EmulatedDqnGpu>());
  }
  ~EmulatedDqn() override { use_gpu(nullptr); }
};

inline WebAgentSettings small(int64_t shards = 4) {
  WebAgentSettings s;
  s.seed = 3;
  s.shards = shards;
  s.batch_size = 8 * shards;
  s.environments = 3;
  s.capacity = shards * 3 * 40;
  s.learning_starts = 30 * shards;
  s.net.hidden = {64, 32};
  s.net.head = 16;
  s.steps = 100;
  s.schedule.total_steps = 100;
  s.epsilon_steps = 5;
  s.target_rate = 0.1;
  s.clip_norm = 0.05;
  return s;
}

inline std::vector<Dqn::Named> environments_of(const std::vector<std::string>& names) {
  std::vector<Dqn::Named> agents;
  for (const std::string& name : names)
    agents.push_back({name, std::make_unique<WebGpuEnvironment>(web_agent_of(name))});
  return agents;
}

// As a worker that holds some shards goes through a step where the GPUs don't sum by themselves.
class ByPhases : public Dqn {
 public:
  using Dqn::Dqn;
  std::unique_ptr<FusedStep> fused_step(JobState&) override { return nullptr; }
};

class ShardByShard : public ByPhases {
 public:
  using ByPhases::ByPhases;
  std::vector<Phase> phases() const override {
    std::vector<Phase> all = ByPhases::phases();
    for (Phase& phase : all) phase.batched = false;
    return all;
  }
};

template <class Kind>
std::unique_ptr<TrainLoop> trained(const WebAgentSettings& settings, const std::vector<std::string>& names, int steps) {
  auto loop = std::make_unique<TrainLoop>(settings, std::make_unique<Kind>(settings, environments_of(names)),
                                          ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  for (int i = 0; i < steps; ++i) loop->step();
  return loop;
}

// Everything: weights, optimizer, targets, environments, replay.
inline std::map<std::string, at::Tensor> all_of(TrainLoop& loop) {
  std::map<std::string, at::Tensor> all;
  const auto put = [&](const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& t : tensors) all[t.name] = t.tensor.clone();
  };
  put(loop.state().model_tensors());
  put(loop.state().replicated_state());
  for (int shard = 0; shard < loop.state().shards(); ++shard) put(loop.state().shard_state(shard));
  return all;
}

inline void expect_equal(TrainLoop& one, TrainLoop& other) {
  const auto a = all_of(one), b = all_of(other);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

}  // namespace tandem
