// nn/attention_kernels.h -- forward and backward of each AttentionKernel; for attention.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "kernels/random_source.h"
#include "nn/attention.h"

namespace tandem {

// One call, on tensors of one type, [rows, heads, T, head size] each.
struct AttentionCall {
  AttentionKernel kernel = AttentionKernel::kMath;
  AttentionShape shape;
  bool causal = false;
  double scale = 1;
  int shards = 1;
  at::Tensor bias;  // [rows, 1, 1, keys], 0 or -Inf; undefined: none
  double dropout = 0;
  std::optional<RandomSource> key;
};

struct AttentionResult {
  at::Tensor out;                // [rows, heads, T, head size], in memory [rows, T, heads, head size]
  std::vector<at::Tensor> kept;  // for backward: always as many, whatever the kernel
};
AttentionResult attention_forward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v);

struct AttentionGradients {
  at::Tensor q, k, v;
};
// packed: the three are parts of one tensor [rows, T, 3, heads, head size], where the kernel can do that.
AttentionGradients attention_backward(const AttentionCall& call, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const at::Tensor& out, const std::vector<at::Tensor>& kept,
                                      const at::Tensor& out_grad, bool packed);

}  // namespace tandem
