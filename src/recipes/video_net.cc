#include "recipes/video_net.h"

#include <ATen/ATen.h>

#include "nn/dropout.h"
#include "nn/first_block3d.h"
#include "nn/norm_pool3d.h"
#include "video/pose.h"

namespace tandem {
namespace {

enum VideoSite : uint32_t { kHeadDropout };  // and one more for each layer of the head

}  // namespace

VideoNet::VideoNet(const VideoSettings& settings, int64_t classes) : dropout_(settings.net.dropout) {
  const bool light = settings.net.kind == "light";
  int64_t in = 1, out = light ? settings.net.width / 2 : settings.net.width;
  for (int i = 0; i < (light ? 3 : 4); ++i, in = out, out *= 2) {
    const std::string name = std::to_string(i + 1);
    Block& block = blocks_.emplace_back();
    block.conv = register_module("conv" + name,
                                 Conv3d(Conv3dOptions{.in = in, .out = out, .kernel = 3, .padding = 1, .bias = false}));
    block.norm = register_module("bn" + name, BatchNorm(out));
    block.pool = register_module("pool" + name,
                                 MaxPool3d(Pool3dOptions{.kernel = i == 0 ? torch::ExpandingArray<3>({1, 2, 2}) : 2}));
  }
  mean_ = register_module("mean", GlobalAvgPool3d());
  if (settings.poses) {
    pose_layers_.push_back(register_module("pose1", Linear(kPoseFeatures, 128)));
    pose_layers_.push_back(register_module("pose2", Linear(128, 256)));
    in += 256;
  }
  const int64_t wide = light ? 256 : 512;
  head_.push_back(register_module("fc1", Linear(in, wide)));
  head_.push_back(register_module("fc2", Linear(wide, wide / 2)));
  head_.push_back(register_module("fc3", Linear(wide / 2, classes)));
}

at::Tensor VideoNet::forward(at::Tensor x, const at::Tensor& poses, const ShardContext* context) {
  // One channel lies in both orders; strides of channels last make the layers behind it keep that order.
  const int64_t area = x.size(3) * x.size(4);
  x = x.as_strided(x.sizes(), {x.size(2) * area, 1, area, x.size(4), 1});
  x = first_block(*blocks_[0].conv, *blocks_[0].norm, *blocks_[0].pool, x);
  for (size_t i = 1; i < blocks_.size(); ++i)
    x = norm_relu_pool(*blocks_[i].norm, *blocks_[i].pool, blocks_[i].conv(x));
  x = mean_(x);
  if (!pose_layers_.empty()) {
    at::Tensor pose = poses;
    for (Linear& layer : pose_layers_) pose = at::relu(layer(pose));
    x = at::cat({x, pose.mean(1).to(x.scalar_type())}, 1);
  }
  for (size_t i = 0; i + 1 < head_.size(); ++i) {
    x = at::relu(head_[i](x));
    if (context) x = dropout(x, dropout_, context->random(kHeadDropout + static_cast<uint32_t>(i)));
  }
  return head_.back()(x);
}

}  // namespace tandem
