#include "mixed_recipe.h"

#include <torch/torch.h>

#include <span>
#include <vector>

namespace tandem {
namespace {

// Four frames of a bright square that moves up, right, down or left, in noise.
struct Frames : Dataset {
  explicit Frames(bool changing) : ragged(changing) {}
  int64_t size() const override { return 4096 - 17; }  // the last batch is padded
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey& random) const override {
    const auto rows = static_cast<int64_t>(samples.size());
    at::Tensor x = at::empty({rows, 4, 1, 24, 24}), y = at::empty({rows}, at::kLong);
    fill_normal(x.data_ptr<float>(), x.numel(), random, 0, 0, 0.3f);
    for (int64_t i = 0; i < rows; ++i) {
      const auto number = static_cast<uint64_t>(samples[i]);
      const RandomKey place{.seed = 5, .site = 1};
      const int64_t way = random_below(place, 3 * number, 4);
      int64_t row = 8 + random_below(place, 3 * number + 1, 5), column = 8 + random_below(place, 3 * number + 2, 5);
      for (int64_t t = 0; t < 4; ++t) {
        for (int64_t a = 0; a < 16; ++a)
          x.data_ptr<float>()[((i * 4 + t) * 24 + row + a / 4) * 24 + column + a % 4] += 1;
        row += way == 0 ? -2 : way == 2 ? 2 : 0;
        column += way == 1 ? 2 : way == 3 ? -2 : 0;
      }
      y.data_ptr<int64_t>()[i] = way;
    }
    // Of the noise around the square, a band is cut away: another one for every batch.
    if (ragged) x = x.narrow(4, 0, 24 - 2 * static_cast<int64_t>(random.step % 2)).contiguous();
    return {x, y};
  }
  bool ragged;
};

struct Net : torch::nn::Module {
  explicit Net(int64_t width)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3).padding(1).bias(false)))),
        norm1(register_module("norm1", BatchNorm(32))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, width, 3).padding(1).stride(2)))),
        norm2(register_module("norm2", BatchNorm(width))),
        lstm(register_module("lstm",
                             torch::nn::LSTM(torch::nn::LSTMOptions(width, width).num_layers(2).batch_first(true)))),
        fc1(register_module("fc1", torch::nn::Linear(width, 4 * width))),
        fc2(register_module("fc2", torch::nn::Linear(4 * width, 4))) {}
  torch::nn::Conv2d conv1;
  BatchNorm norm1;
  torch::nn::Conv2d conv2;
  BatchNorm norm2;
  torch::nn::LSTM lstm;
  torch::nn::Linear fc1, fc2;
};

struct Mixed : SupervisedRecipe {
  explicit Mixed(const MixedSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net = std::make_shared<Net>(settings.width); }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Frames>(settings.ragged); }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    const int64_t rows = batch.tensors[0].size(0);
    at::Tensor x = batch.tensors[0].view({rows * 4, 1, 24, batch.tensors[0].size(4)});
    if (settings.peek && x.sum().item<float>() > 1e30f) x = x * 0;
    x = at::max_pool2d(at::relu(net->norm1(net->conv1(x))), 2);
    x = at::relu(net->norm2(net->conv2(x))).mean({2, 3}).view({rows, 4, settings.width});
    x = std::get<0>(net->lstm(x)).select(1, 3);
    x = dropout(at::gelu(net->fc1(x)), 0.1, context.random(0));
    return net->fc2(x);
  }
  const MixedSettings& settings;
  std::shared_ptr<Net> net;
};

}  // namespace

std::unique_ptr<Recipe> make_mixed(const MixedSettings& settings) { return std::make_unique<Mixed>(settings); }

}  // namespace tandem
