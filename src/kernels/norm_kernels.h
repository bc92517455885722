// kernels/norm_kernels.h -- layer norm over the rows of several shards, with an addition before it, and its gradients.
//
// A row's results depend on that row alone. The gradients of weight and bias are found for each shard apart, in an
// order that follows the rows of one shard alone (kernels/norm_math.h). The GPU's kernels give the bits of the CPU's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

inline constexpr int kMaxNormWidth = 8192;

// sum = x + residual (just x without one); out = (sum - mean) * rstd * weight + bias. All [rows, width], contiguous.
struct LayerNormForwardCall {
  int64_t rows = 0;
  int width = 0;
  float eps = 0;
  TypedInput x, residual;
  const float *weight = nullptr, *bias = nullptr;  // [width]
  TypedOutput sum;                                 // where there is a residual; out is of its rounded numbers
  TypedOutput out;
  float *mean = nullptr, *rstd = nullptr;  // [rows]
};

struct LayerNormBackwardCall {
  int shards = 1;
  int64_t shard_rows = 0;
  int width = 0;
  TypedInput sum;       // what was normalised
  TypedInput out_grad;  // of `out`
  TypedInput sum_grad;  // of `sum`, from its other uses; may be absent
  const float *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  TypedOutput grad, second_grad;  // the gradient of `sum`, in one or two types; may be absent
  // [shards, width] each; null: not wanted, then all three. scratch: layer_norm_scratch() floats.
  float *weight_leaves = nullptr, *bias_leaves = nullptr, *scratch = nullptr;
};

// Rows that are summed into one partial sum: a function of a shard's rows alone, and at most 256 partial sums.
inline int64_t norm_block_rows(int64_t shard_rows) {
  int64_t rows = 32;
  while (shard_rows > rows * 256) rows *= 2;
  return rows;
}
inline int64_t norm_blocks(int64_t shard_rows) {
  return (shard_rows + norm_block_rows(shard_rows) - 1) / norm_block_rows(shard_rows);
}
inline int64_t layer_norm_scratch(int shards, int64_t shard_rows, int width) {
  return shards * norm_blocks(shard_rows) * 2 * width;
}

struct LayerNormKernels {
  static constexpr KernelTableId kId{"layer norm", 1};
  static const LayerNormKernels& cpu();

  void (*forward)(const LayerNormForwardCall&, void* stream);
  void (*backward)(const LayerNormBackwardCall&, void* stream);
};

}  // namespace tandem
