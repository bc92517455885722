// rl/dqn/dueling_cpu.h -- the double-Q update of a dueling net on a CPU in fp32, by hand: products of
// kernels/cpu/gemm.h, all between them in single passes, no graph of operations.
//
// It computes what dqn.cc's learn() computes by tensors (dueling_net_test.cc compares). The weights are put in order
// for the products once a step, for all shards and for acting, where a library does it in every call. All shards of a
// worker, `pieces` of equally many rows, can learn in one pass: the weights of each net then stay in the second-level
// cache while all rows go by, and what the shards' gradients add up to is made at once, in registers, along the sum
// tree. A piece has the same bits beside others as alone.
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
             int64_t rows);  // of a piece
  ~DuelingCpu();

  // `version` tells weights apart: those of an equal one, 0 or more, are as they were in the last call (within a run
  // the step will do: its weights are what they are). Below 0: look at them anew.

  // ---- one piece, by tensors: states [rows, state_size], and for each row what was done and came of it ----
  struct Batch {
    const at::Tensor &before, &after, &reward, &discount, &action, &weight;
  };
  struct Result {
    at::Tensor loss;  // `share` times the weighted Huber losses' sum; its backward() adds to the net's gradients
    float q_sum = 0;
    at::Tensor errors;  // [rows], absolute
  };
  // Before the next call, backward() of the loss may run once.
  Result learn(const Batch& batch, const std::vector<RandomSource>& masks, double share, int64_t version = -1);

  // ---- several: their rows are filled in, piece after piece, then learned from ----
  struct Rows {
    float *before, *after, *reward, *discount, *weight;
    int64_t* action;
  };
  Rows rows(int64_t pieces);
  struct Learned {
    std::span<const float> losses, q_sums;  // of each piece
    std::span<const float> errors;          // of each row
  };
  // Of the pieces that rows() was asked for, each with its masks.
  Learned learn_batched(const std::vector<std::vector<RandomSource>>& masks, double share, int64_t version);
  // Then, once: the gradients of `scale` times the losses. `parameters` is what the gradients are laid out as.
  void backward_batched(float scale, std::span<const Subtree> sums, const float* parameters);

  // [n, state_size] -> [n, actions], no dropout
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
