// rl/dqn/dqn_on_gpu.h -- the host's side of rl/dqn/dqn_gpu.h: where everything lies, and which launches make a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/recipe.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem {

class Dqn;
enum DqnPhase : int;

// A transition as it travels between workers; two observations follow.
struct TravellingRow {
  int64_t priority;
  int32_t draw, agent;
  Transition transition;
  int32_t unused = 0;
};
static_assert(sizeof(TravellingRow) == 32);

class DqnOnGpu {
 public:
  // Null where the GPU's kernels don't do: no GPU, experience of a real system, environments that live on the host,
  // attention, a net of other than two hidden layers, accumulation. `why` tells, where there is a GPU.
  static std::unique_ptr<DqnOnGpu> make(Dqn& dqn, std::string* why);

  // Phases of one shard, where several workers hold shards.
  std::vector<at::Tensor> inputs(const ShardContext& context, const at::Tensor& states, const at::Tensor& reward,
                                 const at::Tensor& discount, const at::Tensor& action, const at::Tensor& priority);
  void run(DqnPhase phase, ShardContext& context);
  void rest(bool resting) { resting_ = resting; }
  std::unique_ptr<FusedStep> fused_step(JobState& state);  // null where the tree of shards is too deep

 private:
  friend class DqnFusedStep;
  // Tables and room for a launch over shards [first, first + count) of all agents.
  struct Launch {
    DqnShape shape;
    DqnOffsets offsets;
    DqnWork work;
    std::vector<at::Tensor> memory;
    int64_t version = -1;  // JobState::version() that it was made for
  };
  DqnOnGpu(Dqn& dqn, const DqnKernels& kernels, GpuAdvance advance) : dqn_(dqn), k_(kernels), advance_(advance) {}
  Launch make_launch(JobState& state, int first, int count);
  Launch& launch_of(ShardContext& context);
  StepParams params(uint64_t seed, int64_t step, double loss_scale) const;
  void act(Launch& launch, ShardContext& context);
  void serve(Launch& launch, ShardContext& context);
  void learn(Launch& launch, ShardContext& context);

  Dqn& dqn_;
  const DqnKernels& k_;
  GpuAdvance advance_;
  bool resting_ = false;
  std::map<int, Launch> launches_;  // by shard
};

}  // namespace tandem
