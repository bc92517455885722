// kernels/token_kernels.h -- cross-entropy and embeddings over the rows of several shards. A row's results depend on
// that row alone; gradients of an embedding's rows are found for each shard apart. The GPU's kernels give the bits of
// the CPU's.
#pragma once

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

// losses[r] = weight of the label * (log of the sum of exp(logits[r]) - logits[r][label]); 0 for ignored rows, NaN
// where the label is no class. Sums are float, in the order of kernels/softmax_math.h; logits are read once.
struct CrossEntropyForward {
  int64_t rows = 0, classes = 0;
  TypedInput logits;                     // [rows, classes]
  const int64_t* labels = nullptr;       // [rows]
  const float* class_weights = nullptr;  // [classes]; null: all 1
  int64_t ignore_index = -100;
  float* losses = nullptr;    // [rows]
  float* log_sums = nullptr;  // [rows, 2], for backward: a row's maximum, and the log of the sum relative to it
};
struct CrossEntropyBackward {
  CrossEntropyForward forward;        // as it was called
  const float* loss_grads = nullptr;  // [rows]
  TypedOutput grad;                   // [rows, classes] of the logits' type; may be the logits themselves
};
struct CrossEntropyKernels {
  static constexpr KernelTableId kId{"cross entropy", 1};
  static const CrossEntropyKernels& cpu();

  void (*forward)(const CrossEntropyForward&, void* stream);
  void (*backward)(const CrossEntropyBackward&, void* stream);
};

// out[r] = weight[tokens[r]]; NaN where there is no such row.
struct EmbeddingForward {
  int64_t rows = 0, count = 0;
  int width = 0;
  const int64_t* tokens = nullptr;  // [rows]
  const float* weight = nullptr;    // [count, width]
  float* out = nullptr;             // [rows, width]
};
// To leaves[shard][token] the gradients of its rows are added, from the first row to the last. Tokens that are not
// there, and padding_idx, get none.
struct EmbeddingBackward {
  int shards = 1;
  int64_t shard_rows = 0, count = 0, padding_idx = -1;
  int width = 0;
  const int64_t* tokens = nullptr;  // [shards * shard_rows]
  // For a GPU: shard * count + token of all rows, sorted (what is no token comes last, as shards * count or above), and
  // the row of each, in order among equals.
  const int64_t *sorted_keys = nullptr, *sorted_rows = nullptr;
  TypedInput out_grad;      // [shards * shard_rows, width]
  float* leaves = nullptr;  // [shards, count, width]
};
struct EmbeddingKernels {
  static constexpr KernelTableId kId{"embedding", 1};
  static const EmbeddingKernels& cpu();

  void (*forward)(const EmbeddingForward&, void* stream);
  void (*backward)(const EmbeddingBackward&, void* stream);
};

}  // namespace tandem
