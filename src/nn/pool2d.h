// nn/pool2d.h -- pools over images for several shards in one pass: MaxPool2d, AvgPool2d, GlobalAvgPool2d.
//
// Kernels of our own (kernels/pool_kernels.h): a row's bits do not depend on the rows beside it, gradients are gathered
// without atomics, CPU and GPU give equal bits. Input is [N, C, H, W], channels last or contiguous, float, bf16 or
// fp16; the output has its memory format. Sizes round down, as torch's do without ceil_mode.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

struct Pool2dOptions {
  torch::ExpandingArray<2> kernel;       // 3, or {3, 5}: height and width
  torch::ExpandingArray<2> stride = 0;   // 0: the kernel's
  torch::ExpandingArray<2> padding = 0;  // at most half of the kernel
  bool count_padding = true;             // AvgPool2d: padding counts as zeros in the mean
};

// The maximum of each window. Of equal ones the first counts, row by row, as in torch; NaN counts as larger.
class MaxPool2dImpl : public torch::nn::Module, public ShardAware {
 public:
  // Throws ConfigError for sizes that make no pool, and for windows of more than 256 places.
  explicit MaxPool2dImpl(const Pool2dOptions& options);
  at::Tensor forward(const at::Tensor& x);
  const Pool2dOptions options;
};
TORCH_MODULE(MaxPool2d);

class AvgPool2dImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit AvgPool2dImpl(const Pool2dOptions& options);
  at::Tensor forward(const at::Tensor& x);
  const Pool2dOptions options;
};
TORCH_MODULE(AvgPool2d);

// [N, C, H, W] -> [N, C], the mean over the image.
class GlobalAvgPool2dImpl : public torch::nn::Module, public ShardAware {
 public:
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(GlobalAvgPool2d);

}  // namespace tandem
