// nn/conv3d.h -- 3D convolution for several shards in one pass; parameters have torch::nn::Conv3d's names and shapes.
//
// ATen's operators, one shard at a time, on both devices: cuDNN's engine can't be pinned through ATen and is chosen by
// the batch size too, and oneDNN's may be. Activations are channels last (NDHWC): on a CPU as fast as contiguous ones
// or faster (GF/s of one AVX-512 core, 4 clips, forward, input and weight gradient: 32 -> 64 channels at 17 x 32 x 32
// 110, 111 and 100 beside 65, 92 and 80; 64 -> 128 at 8 x 16 x 16 113, 110 and 115 beside 121, 120 and 108), which is
// what the core's multiply-adds give: columns and a GEMM of ours could not be faster. One input channel runs at 4 to 13
// GF/s: nn/first_block3d.h is for that layer. Weight leaves come in the compute type's rounding, as float.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nn/layer_context.h"

namespace tandem {

struct Conv3dOptions {
  int64_t in = 0, out = 0;          // channels
  torch::ExpandingArray<3> kernel;  // 3, or {1, 3, 3}: time, height and width
  torch::ExpandingArray<3> stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

class Conv3dImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit Conv3dImpl(const Conv3dOptions& options);  // throws ConfigError for sizes that make no convolution
  // [N, in, T, H, W] -> [N, out, T', H', W'] in autocast's type. Throws ConfigError for rows that do not divide by the
  // shards.
  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  const Conv3dOptions options;
  at::Tensor weight, bias;  // [out, in / groups, time, height, width], contiguous or channels last; [out]

 private:
  friend struct Conv3dFunction;
};
TORCH_MODULE(Conv3d);

}  // namespace tandem
