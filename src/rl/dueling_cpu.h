// rl/dueling_cpu.h -- the double-Q update of a dueling net on a CPU in fp32, by hand: products of kernels/products.h,
// all between them in single passes, no graph of operations.
//
// It computes what dqn.cc's learn() computes by tensors (dqn_test.cc compares), in about half the time: at 32 rows
// much of a tensor operation is the call. The weights are put in order for the products once a step, for all shards and
// for acting, where a library does it in every call. The rows to learn from and those that follow them go through the
// net as one product.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "kernels/random_source.h"
#include "rl/dqn_settings.h"

namespace tandem {

class DuelingNetImpl;

class DuelingCpu {
 public:
  // Of the tensors that learn() gets: states [rows, state_size], and for each row what was done and came of it.
  struct Batch {
    const at::Tensor &before, &after, &reward, &discount, &action, &weight;
  };
  struct Result {
    at::Tensor loss;  // `share` times the weighted Huber losses' sum; its backward() adds to the net's gradients
    float q_sum = 0;
    at::Tensor errors;  // [rows], absolute
  };

  DuelingCpu(std::shared_ptr<DuelingNetImpl> net, std::shared_ptr<DuelingNetImpl> target, const NetSettings& settings,
             int64_t rows);
  ~DuelingCpu();

  // `version` tells weights apart: those of an equal one, 0 or more, are as they were in the last call (within a run
  // the step will do: its weights are what they are). Below 0: look at them anew.
  // Before the next call, backward() of the loss may run once.
  Result learn(const Batch& batch, const std::vector<RandomSource>& masks, double share, int64_t version = -1);
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
