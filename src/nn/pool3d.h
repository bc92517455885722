// nn/pool3d.h -- pools over clips for several shards in one pass: MaxPool3d, GlobalAvgPool3d.
//
// Made of the image pools of nn/pool2d.h, whose gradients are gathered without atomics: libtorch's 3D max pool has no
// backward that gives the same bits twice on a GPU. A maximum over a box is one over each frame, then one over time; of
// equal numbers the first counts, frame by frame and row by row, as in torch. Rows, types and memory formats as there.
#pragma once

#include "nn/pool2d.h"

namespace tandem {

struct Pool3dOptions {
  torch::ExpandingArray<3> kernel;       // 2, or {1, 2, 2}: time, height and width
  torch::ExpandingArray<3> stride = 0;   // 0: the kernel's
  torch::ExpandingArray<3> padding = 0;  // at most half of the kernel
};

class MaxPool3dImpl : public torch::nn::Module, public ShardAware {
 public:
  explicit MaxPool3dImpl(const Pool3dOptions& options);  // throws ConfigError for sizes that make no pool
  at::Tensor forward(const at::Tensor& x);               // [N, C, T, H, W] -> [N, C, T', H', W']
  const Pool3dOptions options;

 private:
  MaxPool2d space_{nullptr}, time_{nullptr};  // null where that part of the kernel does nothing
};
TORCH_MODULE(MaxPool3d);

// [N, C, T, H, W] -> [N, C], the mean over the clip.
class GlobalAvgPool3dImpl : public torch::nn::Module, public ShardAware {
 public:
  GlobalAvgPool3dImpl();
  at::Tensor forward(const at::Tensor& x);

 private:
  GlobalAvgPool2d mean_{nullptr};
};
TORCH_MODULE(GlobalAvgPool3d);

}  // namespace tandem
