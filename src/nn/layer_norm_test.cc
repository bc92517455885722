#include "nn/layer_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

LayerNorm norm_of(int64_t width) {
  LayerNorm norm(width);
  const at::NoGradGuard no_grad;
  norm->weight.copy_(test_numbers({width}, 1));
  norm->bias.copy_(test_numbers({width}, 2));
  return norm;
}

// Forward and backward of shards [first, first + count).
PassResults run_norm(LayerNorm& norm, const at::Tensor& x, const at::Tensor& dy, int shards, int first, int count) {
  const TestPass pass(*norm, count);
  at::Tensor mine = shards_of(x, shards, first, count).clone().requires_grad_();
  const at::Tensor y = norm->forward(mine);
  y.backward(shards_of(dy, shards, first, count));
  EXPECT_TRUE(pass.sums.all_came());
  return {{y.detach(), mine.grad()}, {pass.sums.leaves(norm->weight), pass.sums.leaves(norm->bias)}};
}

// The same with a residual, whose sum is used twice.
PassResults run_residual(LayerNorm& norm, const std::vector<at::Tensor>& in, int shards, int first, int count) {
  const TestPass pass(*norm, count);
  const auto mine = [&](int i) { return shards_of(in[i], shards, first, count); };
  at::Tensor x = mine(0).clone().requires_grad_(), residual = mine(1).clone().requires_grad_();
  const auto [sum, normed] = norm->forward_residual(x, residual);
  torch::autograd::backward({sum, normed}, {mine(2).to(sum.dtype()), mine(3).to(normed.dtype())});
  return {{sum.detach(), normed.detach(), x.grad(), residual.grad()},
          {pass.sums.leaves(norm->weight), pass.sums.leaves(norm->bias)}};
}

void expect_norm_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance) {
  EXPECT_TRUE(at::allclose(found.to(at::kFloat), wanted.to(at::kFloat), tolerance, tolerance))
      << (found - wanted).abs().max().item<float>();
}

TEST(LayerNorm, GivesEachShardTheBitsThatItHasAlone) {
  for (const int64_t width : {5, 64, 768, 1500})
    for (const int shards : {1, 2, 3, 5}) {
      LayerNorm norm = norm_of(width);
      const at::Tensor x = test_numbers({37 * shards, width}, 3), dy = test_numbers({37 * shards, width}, 4);
      EXPECT_TRUE(
          same_in_any_pass(shards, [&](int first, int count) { return run_norm(norm, x, dy, shards, first, count); }))
          << width << " " << shards;
    }
}

TEST(LayerNorm, WithAResidualGivesEachShardTheBitsThatItHasAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int shards : {1, 2, 3, 5}) {
      LayerNorm norm = norm_of(96);
      std::vector<at::Tensor> in;
      for (uint32_t i = 0; i < 4; ++i) in.push_back(test_numbers({6 * shards, 7, 96}, 5 + i));
      in[0] = in[0].to(type);
      EXPECT_TRUE(same_in_any_pass(shards, [&](int first, int count) {
        return run_residual(norm, in, shards, first, count);
      })) << shards;
    }
}

TEST(LayerNorm, OneShardAfterTheOtherInsideAPassGivesTheSameBits) {
  LayerNorm batched = norm_of(48), apart = norm_of(48);
  apart->use_one_by_one();
  std::vector<at::Tensor> in;
  for (uint32_t i = 0; i < 4; ++i) in.push_back(test_numbers({3 * 40, 48}, 5 + i));
  EXPECT_TRUE(same_bits(run_residual(batched, in, 3, 0, 3), run_residual(apart, in, 3, 0, 3)));
}

TEST(LayerNorm, IsTorchsAndSoAreItsGradientsWithoutAnEngine) {
  for (const int64_t width : {5, 64, 768, 1500, 5000}) {
    LayerNorm norm = norm_of(width);
    torch::nn::LayerNorm torchs(torch::nn::LayerNormOptions({width}));
    {
      const at::NoGradGuard no_grad;
      torchs->weight.copy_(norm->weight);
      torchs->bias.copy_(norm->bias);
    }
    at::Tensor x = (test_numbers({9, 11, width}, 3) * 3 + 2).requires_grad_(), same = x.detach().clone();
    same.requires_grad_();
    const at::Tensor dy = test_numbers({9, 11, width}, 4);
    const at::Tensor y = norm->forward(x), wanted = torchs->forward(same);
    y.backward(dy);
    wanted.backward(dy);
    expect_norm_near(y, wanted, 1e-5);
    expect_norm_near(x.grad(), same.grad(), 1e-5);
    expect_norm_near(norm->weight.grad(), torchs->weight.grad(), 5e-5);
    expect_norm_near(norm->bias.grad(), torchs->bias.grad(), 5e-5);
  }
}

TEST(LayerNorm, OfASumIsTheSumsAndItsGradientReachesBothAddends) {
  LayerNorm norm = norm_of(40);
  at::Tensor x = test_numbers({12, 40}, 3).requires_grad_(), residual = test_numbers({12, 40}, 4).requires_grad_();
  const at::Tensor by_sum = test_numbers({12, 40}, 5), by_norm = test_numbers({12, 40}, 6);
  const auto [sum, normed] = norm->forward_residual(x, residual);
  EXPECT_TRUE(at::equal(sum, x + residual));
  torch::autograd::backward({sum, normed}, {by_sum, by_norm});
  at::Tensor plain = (x + residual).detach().requires_grad_();
  const at::Tensor wanted = at::layer_norm(plain, {40}, norm->weight.detach(), norm->bias.detach());
  torch::autograd::backward({plain * 1, wanted}, {by_sum, by_norm});
  expect_norm_near(normed, wanted, 1e-5);
  expect_norm_near(x.grad(), plain.grad(), 1e-5);
  EXPECT_TRUE(at::equal(x.grad(), residual.grad()));
}

TEST(LayerNorm, UnderAutocastKeepsTheResidualStreamInFloatAndRoundsTheOutput) {
  LayerNorm norm = norm_of(64);
  const at::Tensor x = test_numbers({8, 64}, 3).to(at::kBFloat16), residual = test_numbers({8, 64}, 4);
  const TestAutocast autocast;
  const auto [sum, normed] = norm->forward_residual(x, residual);
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_EQ(normed.scalar_type(), at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  const at::Tensor wanted = at::layer_norm(x.to(at::kFloat) + residual, {64}, norm->weight, norm->bias);
  expect_norm_near(normed, wanted, 0.01);
  EXPECT_TRUE(at::equal(normed, norm->forward(sum).to(at::kBFloat16)));
}

TEST(LayerNorm, RefusesAnotherWidthRowsThatDoNotDivideAndAResidualOfAnotherShape) {
  LayerNorm norm(8);
  EXPECT_THROW(norm->forward(at::ones({4, 9})), ConfigError);
  EXPECT_THROW(norm->forward_residual(at::ones({4, 8}), at::ones({2, 8})), ConfigError);
  EXPECT_THROW(LayerNorm(0), ConfigError);
  EXPECT_THROW(LayerNorm(8193), ConfigError);
  const TestPass pass(*norm, 3);
  norm->bind(std::make_shared<LayerContext>(norm->pass()), "h.2.ln_1");
  try {
    norm->forward(at::ones({4, 8}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "h.2.ln_1 has 4 rows for 3 shards");
  }
}

}  // namespace
}  // namespace tandem
