// nn/layer_norm.h -- layer norm over the last dimension, with the addition of a residual before it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

class LayerNormImpl : public torch::nn::Module, public ShardAware {
 public:
  // Throws ConfigError for a width of 0 or above 8,192.
  explicit LayerNormImpl(int64_t width, double eps = 1e-5);

  // [rows, ..., width] -> the same shape. Under autocast the output has autocast's type, else x's (float, bf16 or
  // fp16); statistics are float. Throws ConfigError for another width, and for rows that do not divide by the shards.
  at::Tensor forward(const at::Tensor& x);

  struct Sum {
    at::Tensor sum;     // x + residual, in the type that both promote to
    at::Tensor normed;  // as forward(sum) gives it
  };
  // One kernel each way.
  Sum forward_residual(const at::Tensor& x, const at::Tensor& residual);

  int64_t width() const { return width_; }
  double eps() const { return eps_; }
  at::Tensor weight, bias;

 private:
  friend struct LayerNormFunction;
  void refuse_bad_input(const at::Tensor& x) const;
  void expect_leaves() const;
  int64_t width_;
  double eps_;
};
TORCH_MODULE(LayerNorm);

}  // namespace tandem
