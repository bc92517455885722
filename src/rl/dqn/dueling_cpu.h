// rl/dqn/dueling_cpu.h -- the double-Q update of a dueling net on a CPU in fp32, hand-written: GEMMs of
// kernels/cpu/gemm.h, everything between them in single passes, no autograd graph.
//
// It computes what dqn.cc's learn() computes with tensors (dueling_net_test.cc compares). Weights are packed for the
// GEMMs once per step, for all shards and for acting; a library would pack them in every call. All shards of a worker,
// of equally many rows each, can learn in one batched pass: the weights of each net then stay in L2 while the rows
// stream by, and the shards' gradients are summed along the sum tree in registers. A shard has the same bits batched as
// alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "engine/recipe.h"
#include "kernels/random_source.h"
#include "rl/dqn/dqn_settings.h"

namespace tandem {

class DuelingNetImpl;

class DuelingCpu {
 public:
  DuelingCpu(std::shared_ptr<DuelingNetImpl> net, std::shared_ptr<DuelingNetImpl> target, const NetSettings& settings,
             int64_t rows);  // of one shard
  ~DuelingCpu();

  // `version` identifies the weights: packed weights are used again while it is the same (within a run, the step).
  // Below 0: pack anew.

  // ---- one shard, from tensors: states [rows, observation_size], and for each row action, reward, discount, weight
  // ----
  struct Batch {
    const at::Tensor &before, &after, &reward, &discount, &action, &weight;
  };
  struct Result {
    at::Tensor loss;  // `share` times the weighted Huber losses' sum; its backward() adds to the net's gradients
    float q_sum = 0;
    at::Tensor td_errors;  // [rows], absolute
  };
  // Before the next call, backward() of the loss may run once.
  Result learn(const Batch& batch, const std::vector<RandomSource>& masks, double share, int64_t version = -1);

  // ---- several shards, batched: their rows are filled in shard by shard, then learned from ----
  struct Rows {
    float *before, *after, *reward, *discount, *weight;
    int64_t* action;
  };
  Rows rows(int64_t shards);
  struct Learned {
    std::span<const float> losses, q_sums;  // of each shard
    std::span<const float> td_errors;       // of each row
  };
  // Forward and loss of the shards that rows() was called for, each with its dropout streams.
  Learned learn_batched(const std::vector<std::vector<RandomSource>>& masks, double share, int64_t version);
  // Then, once: the gradients of `scale` times the losses. Gradients have the layout of `parameters`.
  void backward_batched(float scale, std::span<const Subtree> sums, const float* parameters);

  // [n, observation_size] -> [n, actions], no dropout
  at::Tensor q_values(const at::Tensor& states, int64_t version = -1);

 private:
  friend struct DuelingCpuBackward;
  struct Work;
  void backward(float scale);
  void pack_online(int64_t version);
  std::shared_ptr<DuelingNetImpl> net_, target_;
  NetSettings settings_;
  std::unique_ptr<Work> work_;
};

}  // namespace tandem
