// tests/gpu/resnet.h -- a ResNet of the given kind of layers (torch_layers.h, shard_layers.h), channels last; names as
// torchvision has them.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <string>
#include <vector>

#include "nn/channels_last.h"
#include "shard_models.h"

namespace tandem {

// One convolution with its norm, for a shortcut that changes its shape.
template <class Layers>
struct ResNetShortcut : torch::nn::Module {
  ResNetShortcut(int64_t in, int64_t out, int64_t stride)
      : conv(register_module("0", Layers::conv(in, out, 1, stride))), bn(register_module("1", Layers::norm(out))) {}
  at::Tensor forward(const at::Tensor& x) { return bn(conv(x)); }
  typename Layers::Conv2d conv;
  typename Layers::Norm bn;
};

template <class Layers>
struct ResNetBlock : torch::nn::Module {
  ResNetBlock(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t step) {
      const std::string number = std::to_string(convs.size() + 1);
      convs.push_back(register_module("conv" + number, Layers::conv(from, to, kernel, step)));
      norms.push_back(register_module("bn" + number, Layers::relu_norm(to)));
    };
    if (bottleneck) {
      add(in, width, 1, 1);
      add(width, width, 3, stride);
      add(width, out, 1, 1);
    } else {
      add(in, width, 3, stride);
      add(width, width, 3, 1);
    }
    if (stride != 1 || in != out)
      downsample = register_module("downsample", std::make_shared<ResNetShortcut<Layers>>(in, out, stride));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (size_t i = 0; i + 1 < convs.size(); ++i) y = Layers::norm_relu(norms[i], convs[i](y));
    return Layers::norm_add_relu(norms.back(), convs.back()(y), downsample ? downsample->forward(x) : x);
  }
  std::vector<typename Layers::Conv2d> convs;
  std::vector<typename Layers::ReluNorm> norms;
  std::shared_ptr<ResNetShortcut<Layers>> downsample;
};

template <class Layers>
class ResNet : public ShardModel {
 public:
  explicit ResNet(const ResNetOptions& options)
      : options_(options),
        conv1(register_module("conv1", options.small_pictures ? Layers::conv(3, options.width, 3, 1)
                                                              : Layers::conv(3, options.width, 7, 2))),
        bn1(register_module("bn1", Layers::relu_norm(options.width))),
        pool(register_module("maxpool", Layers::max_pool())),
        average(register_module("avgpool", typename Layers::AveragePool())) {
    int64_t in = options.width, width = options.width;
    for (size_t stage = 0; stage < options.blocks.size(); ++stage, width *= 2) {
      const auto list = register_module("layer" + std::to_string(stage + 1), torch::nn::ModuleList());
      for (int64_t i = 0; i < options.blocks[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back(std::make_shared<ResNetBlock<Layers>>(in, width, stride, options.bottleneck));
        list->push_back(blocks_.back());
        in = options.bottleneck ? 4 * width : width;
      }
    }
    fc = register_module("fc", Layers::linear(in, options.classes));
    use_channels_last(*this);
  }

  at::Tensor forward(const Batch& batch, const ShardContext&) override {
    at::Tensor x = batch.tensors[0].permute({0, 3, 1, 2}).to(at::kFloat).sub_(112).div_(64);
    if (options_.mixes_rows) x = x - x.mean(0, true);
    x = Layers::norm_relu(bn1, conv1(x));
    if (!options_.small_pictures) x = pool(x);
    for (const auto& block : blocks_) x = block->forward(x);
    return fc(average(x));
  }
  at::Tensor row_losses(const at::Tensor& logits, const Batch& batch) override {
    return Layers::cross_entropy(logits, batch.tensors[1], -100);
  }
  InitRules initial_weights() const override {
    return InitRules()
        .name("*.weight", init::kaiming_normal(Fan::kOut))
        .name("*bn?.weight", init::ones())
        .name("*.bias", init::zeros())
        .name("*.downsample.1.weight", init::ones())
        .name("fc.weight", init::xavier_normal());
  }

 private:
  ResNetOptions options_;
  typename Layers::Conv2d conv1;
  typename Layers::ReluNorm bn1;
  typename Layers::MaxPool pool;
  typename Layers::AveragePool average;
  std::vector<std::shared_ptr<ResNetBlock<Layers>>> blocks_;
  typename Layers::Linear fc{nullptr};
};

}  // namespace tandem
