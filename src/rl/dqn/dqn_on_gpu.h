// rl/dqn/dqn_on_gpu.h -- the host's side of rl/dqn/dqn_gpu.h: where everything lies, and which launches make a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/recipe.h"
#include "rl/dqn/dqn_launch.h"
#include "rl/dqn/dqn_range.h"
#include "rl/dqn/dqn_replicated.h"

namespace tandem {

class Dqn;
enum DqnPhase : int;

class DqnOnGpu {
 public:
  // Null where the GPU's kernels don't do: no GPU, experience of a real system, environments that live on the host,
  // attention, a net of other than two hidden layers, accumulation. `why` tells, where there is a GPU.
  static std::unique_ptr<DqnOnGpu> make(Dqn& dqn, std::string* why);
  DqnReplicated& replicated() { return replicated_; }

  // ---- phases, where several workers hold shards and the GPUs don't sum by themselves ----
  // One shard; the inputs of its learn phase.
  std::vector<at::Tensor> inputs(const ShardContext& context, const at::Tensor& states, const at::Tensor& reward,
                                 const at::Tensor& discount, const at::Tensor& action, const at::Tensor& priority);
  void run(DqnPhase phase, ShardContext& context);
  // All of a worker's.
  void run_batched(DqnPhase phase, std::span<ShardContext> shards, std::span<const Subtree> sums);
  bool learns_batched() const;  // every subtree's sum can be made by the kernels

  // ---- a whole step of one worker's shards: dqn_fused_step.cc ----
  std::unique_ptr<FusedStep> fused_step(JobState& state);  // null where the tree of shards is too deep
  void rest(bool resting) { resting_ = resting; }

 private:
  friend class DqnFusedStep;
  DqnOnGpu(Dqn& dqn, const DqnKernels& kernels, GpuAdvance advance);
  // A launch over shards [first, first + count) of all agents, without memory for inputs and reports.
  DqnLaunch make_launch(JobState& state, int first, int count) const;
  DqnShape shape_of(int first, int count) const;
  DqnOffsets offsets_in(const JobState& state) const;
  void fill_tables(DqnLaunch& made, JobState& state) const;
  DqnRange& range(JobState& state, int first, int count);
  StepParams params(uint64_t seed, int64_t step, double loss_scale) const;
  StepParams params(const ShardContext& context) const;
  void learn(const DqnLaunch& launch, ShardContext& context);

  Dqn& dqn_;
  const DqnKernels& k_;
  GpuAdvance advance_;
  DqnReplicated replicated_;
  bool resting_ = false;
  int64_t version_ = -1;                            // JobState::version() that the ranges were made for
  std::map<std::pair<int, int>, DqnRange> ranges_;  // by first shard and count
};

}  // namespace tandem
