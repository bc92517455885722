// rl/dueling_cpu.h -- the double-Q update of a dueling net on a CPU in fp32, by hand: the products by the library, all
// between them in single passes, no graph of operations.
//
// It computes what dqn.cc's learn() computes by tensors (dqn_test.cc compares), in half the time: at 32 rows most of a
// tensor operation is the call. The rows to learn from and those that follow them go through the net as one product.
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

  // Before the next call, backward() of the loss may run once.
  Result learn(const Batch& batch, const std::vector<RandomSource>& masks, double share);
  at::Tensor q_values(const at::Tensor& states);  // [n, state_size] -> [n, actions], no dropout

 private:
  friend struct DuelingCpuBackward;
  struct Work;
  void backward(float scale);
  std::shared_ptr<DuelingNetImpl> net_, target_;
  NetSettings settings_;
  std::unique_ptr<Work> work_;
};

}  // namespace tandem
