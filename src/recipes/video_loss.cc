#include "recipes/video_loss.h"

#include <ATen/ATen.h>

#include "nn/cross_entropy.h"

namespace tandem {

at::Tensor smoothed_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& weights,
                                  double smoothing) {
  at::Tensor losses = cross_entropy(logits, labels, {.class_weights = weights});
  if (smoothing == 0) return losses;
  const at::Tensor spread = -(at::log_softmax(logits.to(at::kFloat), 1) * weights).mean(1);
  return (1 - smoothing) * losses + smoothing * spread;
}

}  // namespace tandem
