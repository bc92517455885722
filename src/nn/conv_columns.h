// nn/conv_columns.h -- weight gradients of a convolution, of each shard, as GEMMs over im2col columns.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/conv_kernels.h"

namespace tandem {

// The shape of a convolution of x [N, C, H, W] that gives y [N, out, H', W'].
ConvShape conv_shape(const at::Tensor& x, const at::Tensor& y, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation);

// Chunks of a shard's `places` for a weight of [out, columns]: enough tiles to fill a GPU, as long as a chunk has 4,096
// places. Follows from the shard's shape alone, and divides `places`.
int64_t conv_chunks(int64_t places, int64_t out, int64_t columns);

struct ConvLeavesPass {
  int shards = 1, job_shards = 1;
  bool one_by_one = false;
  int64_t column_bytes = int64_t{256} << 20;  // of memory for columns, at most, but a chunk's; bits do not depend on it
};

// [shards, out, kernel_h, kernel_w, channels], float. x and dy are channels last, of one type.
at::Tensor conv_weight_leaves(const ConvLeavesPass& pass, const ConvShape& shape, const at::Tensor& x,
                              const at::Tensor& dy);

}  // namespace tandem
