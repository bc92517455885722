// nn/cross_entropy.h -- the cross-entropy of each row, from logits of any type and without a copy of them.
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

class LinearImpl;

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

// cross_entropy(head(x), labels, options) of x [rows, in] without ever having all logits: `chunk_rows` rows of each
// shard of the pass at a time. Backward makes the logits again, so this costs the head's GEMM once more, and saves two
// tensors [rows, classes]. Losses have the same bits; gradients of the head's parameters are added up chunk by chunk.
// Throws ConfigError also for a head with GELU, and for a chunk of 0 rows.
inline constexpr int64_t kHeadChunkRows = 1024;
at::Tensor head_cross_entropy(LinearImpl& head, const at::Tensor& x, const at::Tensor& labels,
                              const CrossEntropyOptions& options = {}, int64_t chunk_rows = kHeadChunkRows);

}  // namespace tandem
