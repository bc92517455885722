#include "nn/first_block3d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "nn/test_pass.h"

namespace tandem {
namespace {

struct BlockCase {
  int64_t channels, frames, height, width;
  at::ScalarType type = at::kFloat;
};

const std::vector<BlockCase>& block_cases() {
  static const std::vector<BlockCase> cases{
      {32, 5, 16, 20}, {16, 2, 9, 7}, {40, 3, 2, 130}, {32, 4, 8, 8, at::kBFloat16}};
  return cases;
}

struct BlockLayers {
  Conv3d conv;
  BatchNorm norm;
  MaxPool3d pool;
  explicit BlockLayers(int64_t channels)
      : conv(Conv3dOptions{.in = 1, .out = channels, .kernel = 3, .padding = 1, .bias = false}),
        norm(channels),
        pool(Pool3dOptions{.kernel = {1, 2, 2}}) {
    at::NoGradGuard no_grad;
    conv->weight.copy_(test_numbers({channels, 1, 3, 3, 3}, 3, 0.3f));
    norm->weight.copy_(test_numbers({channels}, 4));
    norm->bias.copy_(test_numbers({channels}, 5));
    norm->pass().training = true;
    norm->pass().share = 0.5;
  }
};

// As frames are: in [0, 1], neighbours alike.
at::Tensor block_clips(const BlockCase& c, int rows) {
  const at::Tensor noise = test_numbers({rows, 1, c.frames, c.height, c.width}, 1, 0.15f);
  return (noise + 0.4 + 0.3 * at::sin(at::arange(c.width) * 0.2)).clamp(0, 1).to(c.type);
}

PassResults run_first_block(BlockLayers& layers, const at::Tensor& x, int shards, int64_t first_row, bool fused) {
  const TestPass pass(*layers.norm, shards);
  layers.conv->pass().shards = shards;
  layers.conv->pass().sums = layers.norm->pass().sums;
  const at::Tensor y = fused ? first_block(*layers.conv, *layers.norm, *layers.pool, x)
                             : layers.pool(layers.norm->forward(layers.conv(x), {.relu = true}));
  const at::Tensor dy = test_numbers({first_row + y.size(0), y.size(1), y.size(2), y.size(3), y.size(4)}, 2);
  y.backward(dy.narrow(0, first_row, y.size(0)).to(y.scalar_type()));
  EXPECT_TRUE(pass.sums.all_came());
  layers.conv->pass().sums = nullptr;
  layers.conv->pass().shards = 1;
  const auto leaves = [&](const at::Tensor& of) { return pass.sums.leaves(of); };
  return {{y.detach()},
          {leaves(layers.conv->weight), leaves(layers.norm->weight), leaves(layers.norm->bias),
           leaves(layers.norm->running_mean), leaves(layers.norm->running_var)}};
}

TEST(FirstBlock3d, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const BlockCase& c : block_cases())
    for (const int shards : {1, 2, 3}) {
      BlockLayers layers(c.channels);
      const at::Tensor x = block_clips(c, 2 * shards);
      const auto run = [&](int first, int count) {
        return run_first_block(layers, shards_of(x, shards, first, count), count, 2 * first, true);
      };
      EXPECT_TRUE(same_in_any_pass(shards, run)) << c.channels;
    }
}

TEST(FirstBlock3d, IsConvolutionBatchNormReluAndPoolWithTheirGradients) {
  for (const BlockCase& c : block_cases()) {
    if (c.type != at::kFloat) continue;
    BlockLayers layers(c.channels);
    const at::Tensor x = block_clips(c, 4);
    const PassResults fused = run_first_block(layers, x, 2, 0, true), apart = run_first_block(layers, x, 2, 0, false);
    EXPECT_TRUE(at::allclose(fused.rows[0], apart.rows[0], 1e-4, 1e-4)) << c.channels;
    const std::vector<const char*> names{"weight", "scale", "shift", "mean", "variance"};
    for (size_t i = 0; i < names.size(); ++i) {
      const at::Tensor &a = fused.leaves[i], &b = apart.leaves[i];
      EXPECT_LT((a - b).norm().item<double>(), 2e-5 * b.norm().item<double>()) << names[i] << " " << c.channels;
    }
  }
}

// The same in double, by libtorch: nearer than what the plain layers' float gives would do too.
TEST(FirstBlock3d, IsLibtorchsInDouble) {
  const BlockCase& c = block_cases()[0];
  BlockLayers layers(c.channels);
  const at::Tensor x = block_clips(c, 2);
  const PassResults ours = run_first_block(layers, x, 1, 0, true);
  const auto as_double = [](const at::Tensor& t) { return t.detach().to(at::kDouble).clone().requires_grad_(); };
  at::Tensor w = as_double(layers.conv->weight), scale = as_double(layers.norm->weight),
             shift = as_double(layers.norm->bias);
  const at::Tensor y = at::max_pool3d(
      at::relu(at::batch_norm(at::conv3d(x.to(at::kDouble), w, {}, 1, 1), scale, shift, {}, {}, true, 0, 1e-5, false)),
      {1, 2, 2}, {1, 2, 2});
  y.backward(test_numbers(ours.rows[0].sizes(), 2).to(at::kDouble));
  const auto off = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a.reshape({-1}) - b.reshape({-1})).norm() / b.norm()).item<double>();
  };
  EXPECT_LT(off(ours.rows[0], y), 1e-5);
  EXPECT_LT(off(ours.leaves[0], w.grad()), 1e-5);
  EXPECT_LT(off(ours.leaves[1], scale.grad()), 1e-5);
  EXPECT_LT(off(ours.leaves[2], shift.grad()), 1e-5);
}

TEST(FirstBlock3d, InFewerBitsIsThatOfFloatOnTheRoundedClips) {
  const BlockCase& c = block_cases()[3];
  BlockLayers layers(c.channels);
  const at::Tensor x = block_clips(c, 2);
  const PassResults rounded = run_first_block(layers, x, 1, 0, true);
  const PassResults exact = run_first_block(layers, x.to(at::kFloat), 1, 0, true);
  EXPECT_EQ(rounded.rows[0].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(rounded.rows[0], exact.rows[0].to(at::kBFloat16)));
  EXPECT_LT((rounded.leaves[0] - exact.leaves[0]).norm().item<double>(), 1e-2 * exact.leaves[0].norm().item<double>());
}

TEST(FirstBlock3d, OutsideTrainingAndForOtherLayersTheLayersRunOneAfterTheOther) {
  BlockLayers layers(8);
  const at::Tensor x = block_clips({8, 3, 8, 8}, 2);
  layers.norm->pass().training = false;
  EXPECT_TRUE(same_bits(first_block(*layers.conv, *layers.norm, *layers.pool, x),
                        layers.pool(layers.norm->forward(layers.conv(x), {.relu = true}))));
  Conv3d with_bias(Conv3dOptions{.in = 1, .out = 8, .kernel = 3, .padding = 1});
  EXPECT_TRUE(is_first_block(*layers.conv, *layers.norm, *layers.pool));
  EXPECT_FALSE(is_first_block(*with_bias, *layers.norm, *layers.pool));
}

TEST(FirstBlock3d, OutsideTrainingItTakesTheRunningStatistics) {
  const BlockCase& c = block_cases()[0];
  BlockLayers layers(c.channels);
  layers.norm->pass().training = false;
  const at::Tensor x = block_clips(c, 3);
  const at::NoGradGuard no_grad;
  layers.norm->running_mean.copy_(test_numbers({c.channels}, 6));
  layers.norm->running_var.copy_(test_numbers({c.channels}, 7).abs() + 0.1);
  EXPECT_TRUE(at::allclose(first_block(*layers.conv, *layers.norm, *layers.pool, x),
                           layers.pool(layers.norm->forward(layers.conv(x), {.relu = true})), 1e-5, 1e-5));
}

}  // namespace
}  // namespace tandem
