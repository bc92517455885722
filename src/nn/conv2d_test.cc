#include "nn/conv2d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "base/errors.h"
#include "nn/channels_last.h"
#include "nn/conv_columns.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

struct ConvCase {
  Conv2dOptions options;
  int64_t rows, height, width;  // of a shard
  bool channels_last = true;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases{
      {{.in = 16, .out = 16, .kernel = 3, .padding = 1, .bias = false}, 3, 14, 14},               // a basic block's
      {{.in = 16, .out = 24, .kernel = 3, .stride = 2, .padding = 1, .bias = false}, 2, 15, 13},  // and its first one
      {{.in = 16, .out = 24, .kernel = 1, .stride = 2, .bias = false}, 2, 15, 13},                // and its shortcut
      {{.in = 24, .out = 8, .kernel = 1}, 3, 7, 7},
      {{.in = 3, .out = 8, .kernel = 7, .stride = 2, .padding = 3, .bias = false}, 2, 33, 29},  // a stem
      {{.in = 5, .out = 7, .kernel = {3, 2}, .stride = {1, 2}, .padding = {2, 0}, .dilation = {2, 1}}, 2, 9, 11},
      {{.in = 3, .out = 4, .kernel = 3, .padding = 1}, 2, 8, 8, false},
      {{.in = 8, .out = 12, .kernel = 3, .padding = 1, .groups = 4}, 2, 7, 7},
  };
  return cases;
}

Conv2d made_conv(const ConvCase& c) {
  at::set_num_threads(1);  // small ones: waiting for threads would take most of the time
  torch::manual_seed(3);
  Conv2d layer(c.options);
  if (c.channels_last) use_channels_last(*layer);
  return layer;
}

at::Tensor conv_images(const ConvCase& c, int shards, uint32_t site) {
  const at::Tensor x = test_numbers({shards * c.rows, c.options.in, c.height, c.width}, site);
  return c.channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

PassResults run_conv(Conv2d& layer, const at::Tensor& x0, int shards) {
  const TestPass pass(*layer, shards);
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y = layer(x);
  torch::manual_seed(5);
  // The same gradient for the same row, whatever stands beside it.
  y.backward((y.detach() * 0.5 + 0.1).to(y.scalar_type()));
  EXPECT_TRUE(pass.sums.all_came());
  EXPECT_FALSE(layer->weight.grad().defined());
  PassResults found{{y.detach(), x.grad()}, {pass.sums.leaves(layer->weight)}};
  if (layer->bias.defined()) found.leaves.push_back(pass.sums.leaves(layer->bias));
  return found;
}

TEST(Conv2d, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const ConvCase& c : conv_cases())
    for (const int shards : {1, 2, 3, 5}) {
      Conv2d layer = made_conv(c);
      const at::Tensor x = conv_images(c, shards, 1);
      const auto run = [&](int first, int count) { return run_conv(layer, shards_of(x, shards, first, count), count); };
      EXPECT_TRUE(same_in_any_pass(shards, run)) << *layer << " " << shards;
      const PassResults whole = run(0, shards);
      layer->use_one_by_one();
      EXPECT_TRUE(same_bits(whole, run(0, shards))) << *layer << " " << shards;
    }
}

TEST(Conv2d, ForwardAndGradientsAreTorchs) {
  for (const ConvCase& c : conv_cases()) {
    Conv2d layer = made_conv(c);
    const Conv2dOptions& o = c.options;
    const at::Tensor x0 = conv_images(c, 2, 1);
    const PassResults ours = run_conv(layer, x0, 2);
    at::Tensor x = x0.detach().clone().requires_grad_(), w = layer->weight.detach().clone().requires_grad_(), b;
    if (o.bias) b = layer->bias.detach().clone().requires_grad_();
    const at::Tensor y = at::conv2d(x, w, b, *o.stride, *o.padding, *o.dilation, o.groups);
    y.backward(y.detach() * 0.5 + 0.1);
    EXPECT_TRUE(at::allclose(ours.rows[0], y, 1e-5, 1e-5)) << *layer;
    EXPECT_TRUE(at::allclose(ours.rows[1], x.grad(), 1e-5, 1e-5)) << *layer;
    // The leaves lie in the order of the parameter's memory.
    const at::Tensor memory = c.channels_last ? w.grad().permute({0, 2, 3, 1}) : w.grad();
    EXPECT_TRUE(at::allclose(ours.leaves[0].sum(0), memory.reshape({-1}), 1e-4, 1e-4)) << *layer;
    if (o.bias) {
      EXPECT_TRUE(at::allclose(ours.leaves[1].sum(0), b.grad(), 1e-4, 1e-4)) << *layer;
    }
  }
}

TEST(Conv2d, WithoutAnEngineAutogradGivesTheSameGradients) {
  for (const ConvCase& c : conv_cases()) {
    Conv2d layer = made_conv(c);
    const at::Tensor x0 = conv_images(c, 1, 1);
    const PassResults with = run_conv(layer, x0, 1);
    const at::Tensor x = x0.detach().clone().requires_grad_();
    const at::Tensor y = layer(x);
    y.backward(y.detach() * 0.5 + 0.1);
    EXPECT_TRUE(same_bits(x.grad(), with.rows[1]));
    const at::Tensor gradient = layer->weight.grad();
    const at::Tensor memory = c.channels_last ? gradient.permute({0, 2, 3, 1}) : gradient;
    EXPECT_TRUE(same_bits(memory.reshape({1, -1}), with.leaves[0])) << *layer;
    if (layer->bias.defined()) {
      EXPECT_TRUE(same_bits(layer->bias.grad(), with.leaves[1][0]));
    }
  }
}

TEST(Conv2d, UnderAutocastComputesInBf16AndGivesFloatLeaves) {
  const ConvCase& c = conv_cases()[0];
  Conv2d layer = made_conv(c);
  const at::Tensor x = conv_images(c, 2, 1);
  const PassResults exact = run_conv(layer, x, 2);
  const TestAutocast autocast;
  const PassResults rounded = run_conv(layer, x, 2);
  EXPECT_EQ(rounded.rows[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(rounded.rows[1].scalar_type(), at::kFloat);
  EXPECT_EQ(rounded.leaves[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(rounded.rows[0].to(at::kFloat), exact.rows[0], 2e-2, 2e-2));
  EXPECT_TRUE(at::allclose(rounded.leaves[0], exact.leaves[0], 5e-2, 0.3));
}

// What a GPU does, on the CPU's twins.
TEST(ConvColumns, WeightLeavesOfEachShardAreTorchs) {
  for (const ConvCase& c : conv_cases()) {
    const Conv2dOptions& o = c.options;
    if (o.groups > 1) continue;
    constexpr int kShards = 3;
    const at::Tensor x = conv_images(c, kShards, 1).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor w = test_numbers({o.out, o.in, (*o.kernel)[0], (*o.kernel)[1]}, 2);
    const at::Tensor dy = at::conv2d(x, w, {}, *o.stride, *o.padding, *o.dilation) * 0.1;
    const ConvShape shape = conv_shape(x, dy, *o.kernel, *o.stride, *o.padding, *o.dilation);
    const at::Tensor leaves = conv_weight_leaves({kShards, 8}, shape, x, dy);
    for (int shard = 0; shard < kShards; ++shard) {
      const at::Tensor expected = std::get<1>(at::convolution_backward(
          shards_of(dy, kShards, shard, 1), shards_of(x, kShards, shard, 1), w, at::OptionalIntArrayRef(), *o.stride,
          *o.padding, *o.dilation, false, {0, 0}, 1, {false, true, false}));
      EXPECT_TRUE(at::allclose(leaves[shard], expected.permute({0, 2, 3, 1}), 1e-4, 1e-3)) << shard;
    }
  }
}

TEST(ConvColumns, LeavesDoNotDependOnTheMemoryForColumnsNorOnTheShardsBeside) {
  const at::Tensor x = test_numbers({6, 8, 80, 80}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor dy = test_numbers({6, 4, 80, 80}, 2).contiguous(at::MemoryFormat::ChannelsLast);
  const auto leaves = [&](int first, int count, int64_t bytes) {
    const at::Tensor part = shards_of(x, 3, first, count), gradient = shards_of(dy, 3, first, count);
    const ConvShape shape = conv_shape(part, gradient, {3, 3}, {1, 1}, {1, 1}, {1, 1});
    EXPECT_GT(conv_chunks(shape.places() / count, 4, shape.columns()), 1);
    return conv_weight_leaves({count, 3, false, bytes}, shape, part, gradient);
  };
  const at::Tensor all = leaves(0, 3, int64_t{1} << 30);
  EXPECT_TRUE(same_bits(all, leaves(0, 3, 1)));
  EXPECT_TRUE(same_bits(all, leaves(0, 3, 3'000'000)));
  for (int shard = 0; shard < 3; ++shard)
    EXPECT_TRUE(same_bits(all.narrow(0, shard, 1), leaves(shard, 1, int64_t{1} << 30)));
}

TEST(ConvColumns, ChunksDivideThePlacesAndLeaveLargeWeightsWhole) {
  EXPECT_EQ(conv_chunks(100'352, 64, 576), 16);  // 32 images of 56 x 56: 24 is asked for, 16 divides
  EXPECT_EQ(100'352 % conv_chunks(100'352, 64, 576), 0);
  EXPECT_EQ(conv_chunks(1'568, 512, 4'608), 1);      // 32 images of 7 x 7
  EXPECT_EQ(conv_chunks(4'099 * 4'111, 64, 64), 1);  // no divisor in reach
}

TEST(Conv2d, RefusesRowsThatDoNotDivideByTheShardsAndOtherSizes) {
  EXPECT_THROW(Conv2d(Conv2dOptions{.in = 3, .out = 4, .kernel = 0}), ConfigError);
  EXPECT_THROW(Conv2d(Conv2dOptions{.in = 3, .out = 4, .kernel = 3, .groups = 2}), ConfigError);
  Conv2d layer(Conv2dOptions{.in = 3, .out = 4, .kernel = 5});
  EXPECT_THROW(layer(torch::randn({2, 4, 8, 8})), ConfigError);
  EXPECT_THROW(layer(torch::randn({2, 3, 8, 4})), ConfigError) << "the kernel is wider than the image";
  layer->bind(std::make_shared<LayerContext>(), "layer1.0.conv2");
  layer->pass().shards = 3;
  try {
    layer(torch::randn({7, 3, 8, 8}));
    FAIL() << "7 rows for 3 shards";
  } catch (const ConfigError& error) {
    for (const char* part : {"layer1.0.conv2", "7", "3"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tandem
