// recipes/video_loss.h -- the loss of each clip: weighted cross-entropy, with smoothed labels.
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

// logits [rows, classes], labels [rows], weights float [classes] -> float [rows], as torch's cross_entropy without a
// reduction. `smoothing`: the share of each label that is spread over all classes.
at::Tensor smoothed_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& weights,
                                  double smoothing);

}  // namespace tandem
