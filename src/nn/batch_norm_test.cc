#include "nn/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem {
namespace {

TEST(BatchNorm, ForwardAndGradientsAreTorchs) {
  torch::manual_seed(1);
  for (auto sizes : {std::vector<int64_t>{16, 5}, std::vector<int64_t>{6, 5, 4, 3}}) {
    const at::Tensor x0 = torch::randn(sizes), dy = torch::randn(sizes);
    BatchNorm ours(5);
    ours->context = std::make_shared<BatchNormContext>();
    static_cast<BatchNormMicroBatch&>(*ours->context) = {.training = true, .share = 1, .real = 1};
    ours->sum_mean = at::zeros({5});
    ours->sum_var = at::zeros({5});
    at::Tensor mean = at::zeros({5}), var = at::ones({5}), w = at::ones({5}).requires_grad_(),
               b = at::zeros({5}).requires_grad_();
    at::Tensor x1 = x0.clone().requires_grad_(), x2 = x0.clone().requires_grad_();
    at::Tensor y1 = ours->forward(x1), y2 = at::batch_norm(x2, w, b, mean, var, true, 0.1, 1e-5, false);
    y1.backward(dy);
    y2.backward(dy);
    EXPECT_TRUE(at::equal(y1, y2));
    EXPECT_TRUE(at::equal(x1.grad(), x2.grad()));
    EXPECT_TRUE(at::equal(ours->weight.grad(), w.grad()));
    // torch moved its running ones by 0.1 towards the batch's
    EXPECT_TRUE(at::allclose(0.1 * ours->sum_mean, mean, 1e-5, 1e-7));
    EXPECT_TRUE(at::allclose(0.9 + 0.1 * ours->sum_var, var, 1e-5, 1e-7));
    EXPECT_TRUE(at::equal(ours->running_mean, at::zeros({5}))) << "forward must not touch the running statistics";
  }
}

TEST(BatchNorm, OutsideTrainingUsesTheRunningStatistics) {
  BatchNorm bn(2);
  {
    at::NoGradGuard no_grad;
    bn->running_mean.copy_(torch::tensor({1.f, 2.f}));
    bn->running_var.copy_(torch::tensor({4.f, 9.f}));
  }
  const at::Tensor y = bn->forward(torch::tensor({{3.f, 8.f}}));
  EXPECT_NEAR(y[0][0].item<float>(), 1, 1e-5);
  EXPECT_NEAR(y[0][1].item<float>(), 2, 1e-5);
}

}  // namespace
}  // namespace tandem
