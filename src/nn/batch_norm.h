// nn/batch_norm.h -- batch norm that keeps a shard's run pure.
//
// torch's own changes its running statistics inside forward(), so they would depend on who ran which shard when. This
// one writes the batch statistics into the shard's contribution; the engine combines them along the tree and moves the
// running ones with the update. Statistics are per shard by default. With sync_bn they are those of the whole batch:
// the shards run in lock-step, with one all-reduce in forward and one in backward of each layer. Parameter and buffer
// names are torch's, so an exported model loads into nn.BatchNorm1d/2d/3d.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <span>

namespace tandem {

// What the engine sets before each run of a micro-batch of a shard; one context per model.
struct BatchNormMicroBatch {
  bool training = false;  // false: use the running statistics
  double share = 0;       // this micro-batch's part of the update's real rows: the weight of its statistics
  double real = 1;        // the part of this micro-batch's rows that are real (the first ones)
};

struct BatchNormContext : BatchNormMicroBatch {
  std::function<void(std::span<double>)> all_reduce;  // sync_bn: replaces the values by their sum over all shards
};

class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(int64_t channels, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& x);  // [N, C, ...] -> the same shape

  int64_t channels() const { return channels_; }
  at::Tensor weight, bias, running_mean, running_var;
  // Bound by the engine: where this shard's statistics go (views into the contribution), and the context.
  at::Tensor sum_mean, sum_var;
  std::shared_ptr<BatchNormContext> context;

 private:
  int64_t channels_;
  double eps_;
};
TORCH_MODULE(BatchNorm);

}  // namespace tandem
