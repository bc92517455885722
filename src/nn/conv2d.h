// nn/conv2d.h -- 2D convolution for several shards in one pass; parameters have torch::nn::Conv2d's names and shapes.
//
// GPU, channels last:
//   - 1 x 1 with stride 1 is a linear layer over places (nn/linear_gemm.h): algorithms are ours to choose, once a job.
//   - Else forward and input gradient are cuDNN's, one shard at a time. Its engine can't be pinned through ATen; its
//     heuristics look at the batch size, and may take an engine with other bits for another number of shards.
//   - Weight leaves are GEMMs over im2col columns, with algorithms chosen once a job, in float.
//   - Groups: weight leaves are cuDNN's, shard by shard, rounded to the compute type.
// CPU: ATen's operators, each shard at its own shape.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

struct Conv2dOptions {
  int64_t in = 0, out = 0;          // channels
  torch::ExpandingArray<2> kernel;  // 3, or {3, 5}: height and width
  torch::ExpandingArray<2> stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

class Conv2dImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit Conv2dImpl(const Conv2dOptions& options);  // throws ConfigError for sizes that make no convolution
  // [N, in, H, W] -> [N, out, H', W'] in autocast's type. Throws ConfigError for rows that do not divide by the shards.
  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  const Conv2dOptions options;
  at::Tensor weight, bias;  // [out, in / groups, height, width], contiguous or channels last; [out]

 private:
  friend struct Conv2dFunction;
};
TORCH_MODULE(Conv2d);

}  // namespace tandem
