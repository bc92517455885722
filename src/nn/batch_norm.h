// nn/batch_norm.h -- batch norm that keeps a shard's run pure, with the sum and the ReLU that may follow it.
//
// torch's own changes its running statistics inside forward(), so they would depend on who ran which shard when. This
// one hands the batch statistics of each shard to the pass; the engine combines them along the tree and moves the
// running ones with the update. Statistics are per shard by default, whatever shards stand in the same pass. With
// sync_bn they are those of the whole batch: the shards run in lock-step, with one all-reduce in forward and one in
// backward of each layer. Parameter and buffer names are torch's, so an exported model loads into nn.BatchNorm1d/2d/3d.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

// What follows the norm in the same kernel, with its gradient: y = max(0, norm(x) + add).
struct BatchNormFused {
  bool relu = false;
  at::Tensor add{};  // of x's shape; undefined: none
};

class BatchNormImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit BatchNormImpl(int64_t channels, double eps = 1e-5);
  // [N, C, ...] -> the same shape, type (float, bf16 or fp16; sums are float) and memory format. Channels-last and
  // contiguous memory give equal bits. Throws ConfigError for rows that do not divide by the shards of the pass.
  at::Tensor forward(const at::Tensor& x, const BatchNormFused& fused = {});

  // Throws ConfigError for what forward() can't take.
  void refuse_bad_input(const at::Tensor& x, const at::Tensor& add = {}) const;

  // 1 / sqrt(running_var + eps), for kernels that take the norm's work over outside training.
  at::Tensor running_inv_std() const;

  int64_t channels() const { return channels_; }
  double eps() const { return eps_; }
  at::Tensor weight, bias, running_mean, running_var;

 private:
  int64_t channels_;
  double eps_;
};
TORCH_MODULE(BatchNorm);

}  // namespace tandem
