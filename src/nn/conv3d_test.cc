#include "nn/conv3d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "base/errors.h"
#include "nn/channels_last.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

struct VolumeCase {
  Conv3dOptions options;
  int64_t rows, frames, height, width;  // of a shard
  bool channels_last = false;           // the weight
};

const std::vector<VolumeCase>& volume_cases() {
  static const std::vector<VolumeCase> cases{
      {{.in = 1, .out = 8, .kernel = 3, .padding = 1, .bias = false}, 2, 5, 8, 9},  // a video model's first one
      {{.in = 16, .out = 24, .kernel = 3, .padding = 1, .bias = false}, 2, 4, 6, 6, true},
      {{.in = 8, .out = 16, .kernel = 3, .stride = 2, .padding = 1}, 3, 5, 7, 6},
      {{.in = 5, .out = 7, .kernel = {1, 3, 2}, .stride = {1, 1, 2}, .padding = {0, 2, 0}, .dilation = {1, 2, 1}},
       2,
       3,
       9,
       8,
       true},
      {{.in = 8, .out = 4, .kernel = 3, .padding = 1, .groups = 4}, 2, 3, 5, 5},
  };
  return cases;
}

Conv3d made_volume_conv(const VolumeCase& c) {
  at::set_num_threads(1);
  torch::manual_seed(3);
  Conv3d layer(c.options);
  if (c.channels_last) use_channels_last(*layer);
  return layer;
}

at::Tensor volumes(const VolumeCase& c, int shards) {
  return test_numbers({shards * c.rows, c.options.in, c.frames, c.height, c.width}, 1);
}

PassResults run_volume_conv(Conv3d& layer, const at::Tensor& x0, int shards) {
  const TestPass pass(*layer, shards);
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y = layer(x);
  y.backward((y.detach() * 0.5 + 0.1).to(y.scalar_type()));
  EXPECT_TRUE(pass.sums.all_came());
  EXPECT_FALSE(layer->weight.grad().defined());
  PassResults found{{y.detach(), x.grad()}, {pass.sums.leaves(layer->weight)}};
  if (layer->bias.defined()) found.leaves.push_back(pass.sums.leaves(layer->bias));
  return found;
}

TEST(Conv3d, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const VolumeCase& c : volume_cases())
    for (const int shards : {1, 2, 5}) {
      Conv3d layer = made_volume_conv(c);
      const at::Tensor x = volumes(c, shards);
      const auto run = [&](int first, int count) {
        return run_volume_conv(layer, shards_of(x, shards, first, count), count);
      };
      EXPECT_TRUE(same_in_any_pass(shards, run)) << *layer << " " << shards;
    }
}

TEST(Conv3d, ForwardAndGradientsAreTorchs) {
  for (const VolumeCase& c : volume_cases()) {
    Conv3d layer = made_volume_conv(c);
    const Conv3dOptions& o = c.options;
    const at::Tensor x0 = volumes(c, 2);
    const PassResults ours = run_volume_conv(layer, x0, 2);
    at::Tensor x = x0.detach().clone().requires_grad_(), w = layer->weight.detach().contiguous().requires_grad_(), b;
    if (o.bias) b = layer->bias.detach().clone().requires_grad_();
    const at::Tensor y = at::conv3d(x, w, b, *o.stride, *o.padding, *o.dilation, o.groups);
    y.backward(y.detach() * 0.5 + 0.1);
    EXPECT_TRUE(at::allclose(ours.rows[0], y, 1e-5, 1e-5)) << *layer;
    EXPECT_TRUE(at::allclose(ours.rows[1], x.grad(), 1e-5, 1e-5)) << *layer;
    // The leaves lie in the order of the parameter's memory.
    const at::Tensor memory = c.channels_last ? w.grad().permute({0, 2, 3, 4, 1}) : w.grad();
    EXPECT_TRUE(at::allclose(ours.leaves[0].sum(0), memory.reshape({-1}), 1e-4, 1e-4)) << *layer;
    if (o.bias) {
      EXPECT_TRUE(at::allclose(ours.leaves[1].sum(0), b.grad(), 1e-4, 1e-4)) << *layer;
    }
  }
}

TEST(Conv3d, WithoutAnEngineAutogradGivesTheSameGradients) {
  for (const VolumeCase& c : volume_cases()) {
    Conv3d layer = made_volume_conv(c);
    const at::Tensor x0 = volumes(c, 1);
    const PassResults with = run_volume_conv(layer, x0, 1);
    const at::Tensor x = x0.detach().clone().requires_grad_();
    const at::Tensor y = layer(x);
    y.backward(y.detach() * 0.5 + 0.1);
    EXPECT_TRUE(same_bits(x.grad(), with.rows[1]));
    const at::Tensor gradient = layer->weight.grad();
    const at::Tensor memory = c.channels_last ? gradient.permute({0, 2, 3, 4, 1}) : gradient;
    EXPECT_TRUE(same_bits(memory.reshape({1, -1}), with.leaves[0])) << *layer;
    if (layer->bias.defined()) {
      EXPECT_TRUE(same_bits(layer->bias.grad(), with.leaves[1][0]));
    }
  }
}

TEST(Conv3d, UnderAutocastComputesInBf16AndGivesFloatLeaves) {
  const VolumeCase& c = volume_cases()[1];
  Conv3d layer = made_volume_conv(c);
  const at::Tensor x = volumes(c, 2);
  const PassResults exact = run_volume_conv(layer, x, 2);
  const TestAutocast autocast;
  const PassResults rounded = run_volume_conv(layer, x, 2);
  EXPECT_EQ(rounded.rows[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(rounded.rows[1].scalar_type(), at::kFloat);
  EXPECT_EQ(rounded.leaves[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(rounded.rows[0].to(at::kFloat), exact.rows[0], 2e-2, 3e-2));
  EXPECT_TRUE(at::allclose(rounded.leaves[0], exact.leaves[0], 5e-2, 0.3));
}

// The proof that the comparisons above would see a layer that mixes shards: one leaf, or one row, of another shard.
TEST(Conv3d, APlantedMixOfShardsIsSeen) {
  const VolumeCase& c = volume_cases()[0];
  Conv3d layer = made_volume_conv(c);
  const at::Tensor x = volumes(c, 2);
  const auto run = [&](int first, int count) {
    PassResults found = run_volume_conv(layer, shards_of(x, 2, first, count), count);
    if (count == 2) found.leaves[0][1][0] = found.leaves[0][0][0];
    return found;
  };
  EXPECT_FALSE(same_in_any_pass(2, run));
}

TEST(Conv3d, RefusesRowsThatDoNotDivideByTheShardsAndOtherSizes) {
  EXPECT_THROW(Conv3d(Conv3dOptions{.in = 3, .out = 4, .kernel = 0}), ConfigError);
  EXPECT_THROW(Conv3d(Conv3dOptions{.in = 3, .out = 4, .kernel = 3, .groups = 2}), ConfigError);
  Conv3d layer(Conv3dOptions{.in = 3, .out = 4, .kernel = 5});
  EXPECT_THROW(layer(torch::randn({2, 4, 8, 8, 8})), ConfigError);
  EXPECT_THROW(layer(torch::randn({2, 3, 8, 8})), ConfigError);
  EXPECT_THROW(layer(torch::randn({2, 3, 4, 8, 8})), ConfigError) << "the kernel is longer than the clip";
  layer->bind(std::make_shared<LayerContext>(), "block2.conv");
  layer->pass().shards = 3;
  try {
    layer(torch::randn({7, 3, 8, 8, 8}));
    FAIL() << "7 rows for 3 shards";
  } catch (const ConfigError& error) {
    for (const char* part : {"block2.conv", "7", "3"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tandem
