// nn/multihead_attention.h -- self-attention with its projections, under the parameter names of torch's
// MultiheadAttention.
#pragma once

#include "nn/attention.h"
#include "nn/linear.h"

namespace tandem {

class MultiheadAttentionImpl : public torch::nn::Module, public ShardAware {
 public:
  // Throws ConfigError for a width that does not divide by the heads.
  MultiheadAttentionImpl(int64_t width, int64_t heads, const AttentionOptions& options = {});

  // [rows, T, width] -> the same shape; mask and key as for Attention.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {}, const std::optional<RandomSource>& key = {});

  // Of the last token alone, which attends to all: [rows, T, width] -> [rows, width].
  at::Tensor forward_last(const at::Tensor& x);

  at::Tensor in_proj_weight, in_proj_bias;  // [3 width, width], [3 width]: queries, keys, values
  Linear out_proj{nullptr};
  Attention attention{nullptr};

 private:
  at::Tensor project(const at::Tensor& x);  // [rows, T, 3, heads, head size]
  Linear in_proj_;                          // no module of its own: its parameters are the two above
  int64_t heads_;
};
TORCH_MODULE(MultiheadAttention);

}  // namespace tandem
