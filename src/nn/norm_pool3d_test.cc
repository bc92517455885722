#include "nn/norm_pool3d.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "nn/test_pass.h"

namespace tandem {
namespace {

struct FusedCase {
  Pool3dOptions pool;
  int64_t channels, frames, height, width;
  at::ScalarType type = at::kFloat;
};

const std::vector<FusedCase>& fused_cases() {
  static const std::vector<FusedCase> cases{
      {{.kernel = {1, 2, 2}}, 32, 3, 8, 10},
      {{.kernel = 2}, 19, 5, 7, 6},  // boxes do not divide the clip
      {{.kernel = 2}, 64, 4, 6, 6, at::kBFloat16},
      {{.kernel = {1, 2, 2}}, 8, 2, 9, 4, at::kHalf},
  };
  return cases;
}

struct FusedLayers {
  BatchNorm norm;
  MaxPool3d pool;
  explicit FusedLayers(const FusedCase& c) : norm(c.channels), pool(c.pool) {
    at::NoGradGuard no_grad;
    norm->weight.copy_(test_numbers({c.channels}, 3));
    norm->bias.copy_(test_numbers({c.channels}, 4));
    norm->pass().training = true;
    norm->pass().share = 0.25;
  }
};

at::Tensor fused_input(const FusedCase& c, int shards) {
  return (test_numbers({2 * shards, c.channels, c.frames, c.height, c.width}, 1) * 1.5 + 0.4).to(c.type);
}
at::Tensor fused_gradient(const at::Tensor& y, int64_t first_row) {
  at::Tensor gradient = test_numbers({first_row + y.size(0), y.size(1), y.size(2), y.size(3), y.size(4)}, 2);
  return gradient.narrow(0, first_row, y.size(0)).to(y.scalar_type());
}

PassResults run_fused(FusedLayers& layers, const at::Tensor& x0, int shards, int64_t first_row, bool fused) {
  const TestPass pass(*layers.norm, shards);
  const at::Tensor x = x0.detach().clone().requires_grad_();
  const at::Tensor y =
      fused ? norm_relu_pool(*layers.norm, *layers.pool, x) : layers.pool(layers.norm->forward(x, {.relu = true}));
  y.backward(fused_gradient(y, first_row));
  EXPECT_TRUE(pass.sums.all_came());
  const auto leaves = [&](const at::Tensor& of) { return pass.sums.leaves(of); };
  return {{y.detach(), x.grad()},
          {leaves(layers.norm->weight), leaves(layers.norm->bias), leaves(layers.norm->running_mean),
           leaves(layers.norm->running_var)}};
}

TEST(NormPool3d, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const FusedCase& c : fused_cases())
    for (const int shards : {1, 2, 3, 5}) {
      FusedLayers layers(c);
      const at::Tensor x = fused_input(c, shards);
      const auto run = [&](int first, int count) {
        return run_fused(layers, shards_of(x, shards, first, count), count, 2 * first, true);
      };
      EXPECT_TRUE(same_in_any_pass(shards, run)) << c.channels;
      const PassResults whole = run(0, shards);
      layers.norm->use_one_by_one();
      EXPECT_TRUE(same_bits(whole, run(0, shards))) << c.channels;
    }
}

TEST(NormPool3d, IsBatchNormReluAndMaxPoolOneAfterTheOther) {
  for (const FusedCase& c : fused_cases()) {
    FusedLayers layers(c);
    const at::Tensor x = fused_input(c, 3);
    const PassResults fused = run_fused(layers, x, 3, 0, true), apart = run_fused(layers, x, 3, 0, false);
    // In fewer bits the norm's output is rounded before the pool sees it: another place may then be the first maximum.
    EXPECT_TRUE(at::equal(fused.rows[0], apart.rows[0])) << c.channels;
    EXPECT_TRUE(c.type != at::kFloat || at::allclose(fused.rows[1], apart.rows[1], 1e-5, 1e-5)) << c.channels;
    for (size_t i = 0; i < 2 && c.type == at::kFloat; ++i)
      EXPECT_TRUE(at::allclose(fused.leaves[i], apart.leaves[i], 1e-4, 1e-4)) << c.channels << " " << i;
    for (size_t i = 2; i < 4; ++i) EXPECT_TRUE(same_bits(fused.leaves[i], apart.leaves[i])) << c.channels;
  }
}

TEST(NormPool3d, GradientsAreTorchs) {
  for (const FusedCase& c : fused_cases()) {
    FusedLayers layers(c);
    const at::Tensor x0 = fused_input(c, 1);
    const PassResults ours = run_fused(layers, x0, 1, 0, true);
    at::Tensor x = x0.to(at::kFloat).requires_grad_();
    at::Tensor w = layers.norm->weight.detach().clone().requires_grad_();
    at::Tensor b = layers.norm->bias.detach().clone().requires_grad_();
    const at::Tensor y =
        at::max_pool3d(at::relu(at::batch_norm(x, w, b, {}, {}, true, 0, 1e-5, false)), *c.pool.kernel, *c.pool.kernel);
    y.backward(fused_gradient(ours.rows[0], 0).to(at::kFloat));
    const double tolerance = c.type == at::kFloat ? 1e-5 : c.type == at::kHalf ? 4e-3 : 3e-2;
    const auto near = [&](const at::Tensor& a, const at::Tensor& expected, double scale) {
      return at::allclose(a.to(at::kFloat), expected, tolerance, tolerance * scale);
    };
    EXPECT_TRUE(near(ours.rows[0], y, 1)) << c.channels;
    EXPECT_TRUE(near(ours.rows[1], x.grad(), 1)) << c.channels;
    EXPECT_TRUE(near(ours.leaves[0][0], w.grad(), 10)) << c.channels;
    EXPECT_TRUE(near(ours.leaves[1][0], b.grad(), 10)) << c.channels;
  }
}

TEST(NormPool3d, WithoutTrainingOrWithAnotherPoolTheLayersRunOneAfterTheOther) {
  FusedLayers layers(fused_cases()[0]);
  const at::Tensor x = fused_input(fused_cases()[0], 1);
  layers.norm->pass().training = false;
  EXPECT_TRUE(
      same_bits(norm_relu_pool(*layers.norm, *layers.pool, x), layers.pool(layers.norm->forward(x, {.relu = true}))));
  layers.norm->pass().training = true;
  MaxPool3d overlaps(Pool3dOptions{.kernel = 3, .stride = 2, .padding = 1});
  EXPECT_TRUE(same_bits(norm_relu_pool(*layers.norm, *overlaps, x), overlaps(layers.norm->forward(x, {.relu = true}))));
}

TEST(NormPool3d, OutsideTrainingItTakesTheRunningStatistics) {
  const FusedCase& c = fused_cases()[1];
  FusedLayers layers(c);
  layers.norm->pass().training = false;
  const at::Tensor x = fused_input(c, 1);
  const at::NoGradGuard no_grad;
  layers.norm->running_mean.copy_(test_numbers({c.channels}, 6));
  layers.norm->running_var.copy_(test_numbers({c.channels}, 7).abs() + 0.1);
  EXPECT_TRUE(at::allclose(norm_relu_pool(*layers.norm, *layers.pool, x),
                           layers.pool(layers.norm->forward(x, {.relu = true})), 1e-5, 1e-5));
}

}  // namespace
}  // namespace tandem
