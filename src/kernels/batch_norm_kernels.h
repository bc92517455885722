// kernels/batch_norm_kernels.h -- batch norm of the shards of a pass, with what may follow it: + add, then ReLU.
//
// A shard has `rows` values of each channel: its images times the places of an image. Statistics and sums are those of
// each shard alone, in float and in an order that the shard's shape fixes: 32 lanes over blocks of 256 rows (lane l of
// a block adds rows l, l + 32, ...), lanes are halved pairwise, then 32 lanes over the blocks, halved again.
// Channels-last and contiguous memory give equal bits, CPU and CUDA too. On a GPU every call only queues work on
// `stream`.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

struct BatchNormShape {
  int shards;
  int64_t rows, channels;  // of a shard
  // Neighbouring places of one channel: memory is [rows / inner, channels, inner]. 1: [rows, channels], channels last.
  int64_t inner;
  FloatType type;  // of x, y, add and their gradients; all else is float
};

// Floats of the scratch memory that statistics() and backward_sums() take.
int64_t batch_norm_scratch_floats(const BatchNormShape& shape);

struct BatchNormKernels {
  static constexpr KernelTableId kId{"batch norm", 1};
  static const BatchNormKernels& cpu();

  // mean, inv_std [shards, channels]: of each shard, 1 / sqrt(biased variance + eps). mean_leaves, var_leaves: the mean
  // and the unbiased variance, times `share`; null: not wanted.
  void (*statistics)(const BatchNormShape& shape, const void* x, float eps, float share, float* mean, float* inv_std,
                     float* mean_leaves, float* var_leaves, float* scratch, void* stream);

  // y = (x - mean) * (inv_std * weight) + bias, + add where it is not null, then max(0, y) with relu. y may be x or
  // add.
  void (*forward)(const BatchNormShape& shape, const void* x, const void* add, const float* mean, const float* inv_std,
                  const float* weight, const float* bias, bool relu, void* y, void* stream);

  // Backward of it. With relu the gradient counts where y > 0: y is read, or found from x anew where it is null (only
  // without add). `bias_leaves` and `weight_leaves` [shards, channels] are the gradients of bias and weight.
  struct Backward {
    const void *y_grad, *x, *y;
    const float *mean, *inv_std, *weight, *bias;
    bool relu;
  };
  void (*backward_sums)(const BatchNormShape& shape, const Backward& given, float* weight_leaves, float* bias_leaves,
                        float* scratch, void* stream);
  // add_grad: y_grad where it counts; null: not wanted. x_grad null: not wanted.
  void (*backward)(const BatchNormShape& shape, const Backward& given, const float* weight_leaves,
                   const float* bias_leaves, void* x_grad, void* add_grad, void* stream);
};

namespace cuda {
const BatchNormKernels& batch_norm_kernels();
}

}  // namespace tandem
