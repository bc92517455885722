// recipes/video_net.h -- the 3D CNN of `video`: what an animal does at the centre of a clip.
//
//   blocks  conv 3x3x3 - batch norm - ReLU - max-pool, channels 32-64-128-256; the first pool is (1,2,2), which keeps
//           all frames, the others (2,2,2); then the mean over what is left
//   head    512 - 256 - classes, ReLU and dropout between; light: half of it, behind three blocks of half the channels
//   poses   (optional) 18 numbers a frame - 128 - 256, their mean over the clip joined to the first stream's
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "engine/recipe.h"
#include "nn/batch_norm.h"
#include "nn/conv3d.h"
#include "nn/linear.h"
#include "nn/pool3d.h"
#include "recipes/video_settings.h"

namespace tandem {

class VideoNet : public torch::nn::Module {
 public:
  VideoNet(const VideoSettings& settings, int64_t classes);
  // clips [rows, 1, T, H, W], poses [rows, T, 18] or undefined -> [rows, classes]. No context: without dropout.
  at::Tensor forward(at::Tensor clips, const at::Tensor& poses, const ShardContext* context);

 private:
  struct Block {
    Conv3d conv{nullptr};
    BatchNorm norm{nullptr};
    MaxPool3d pool{nullptr};
  };
  std::vector<Block> blocks_;
  GlobalAvgPool3d mean_{nullptr};
  std::vector<Linear> pose_layers_, head_;
  double dropout_;
};

}  // namespace tandem
