#include "recipes/video_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

// Loss and gradient beside torch's own, in double.
TEST(VideoLoss, SmoothedLabelsAndWeightsAreThoseOfTorchsCrossEntropy) {
  const int64_t rows = 23, classes = 7;
  const at::Tensor labels = at::arange(rows) % classes;
  const at::Tensor logits = 3 * at::sin(at::arange(rows * classes, at::kFloat) * 0.7).view({rows, classes});
  const at::Tensor weights = at::linspace(0.2, 2.5, classes);
  for (const double smoothing : {0.0, 0.1, 0.6}) {
    at::Tensor mine = logits.clone().requires_grad_(true), theirs = logits.to(at::kDouble).requires_grad_(true);
    const at::Tensor found = smoothed_cross_entropy(mine, labels, weights, smoothing);
    const at::Tensor wanted =
        at::cross_entropy_loss(theirs, labels, weights.to(at::kDouble), at::Reduction::None, -100, smoothing);
    EXPECT_LT((found - wanted).abs().max().item<double>(), 1e-5) << smoothing;
    found.sum().backward();
    wanted.sum().backward();
    EXPECT_LT((mine.grad() - theirs.grad()).abs().max().item<double>(), 1e-5) << smoothing;
  }
}

}  // namespace
}  // namespace tandem
