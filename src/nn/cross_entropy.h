// nn/cross_entropy.h -- the cross-entropy of each row, from logits of any type and without a copy of them.
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

struct CrossEntropyOptions {
  at::Tensor class_weights{};   // float [classes]; undefined: all 1
  int64_t ignore_index = -100;  // rows with this label: loss 0, gradient 0
};

// logits [rows, classes] in float, bf16 or fp16; labels int64 [rows] -> losses float [rows]: weight of the label times
// (log of the sum of exp of the row - its logit of the label). Sums are float. The gradient has the logits' type. What
// a mean over rows divides by is the caller's affair. A row's bits depend on that row alone. Throws ConfigError for
// other shapes and types, and on the CPU for a label that is no class. A GPU can't tell in time: the loss of such a row
// is NaN, and the engine, which looks for NaN, stops.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options = {});

}  // namespace tandem
