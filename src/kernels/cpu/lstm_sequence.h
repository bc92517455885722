// kernels/cpu/lstm_sequence.h -- whole sequences of an fp32 LSTM on a CPU whose weights fit the caches.
//
// The weights are packed once for all steps (cpu/gemm.h), and a block of rows goes through all its steps before the
// next one begins, so that its states stay in the L2 cache beside the packed weights. A row's bits do not depend on the
// rows beside it. Arrays are contiguous and batch first; gates and their weights are in the order of lstm_kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"

namespace tandem {

// Kept by the caller from call to call.
struct LstmSequenceScratch {
  Panels input, recurrent;
  WeightGradientScratch weights;
  LineFloats hidden, gates, cells;
};

struct LstmSequenceForward {
  int64_t rows = 0, steps = 0, in = 0, hidden = 0;
  const float* x = nullptr;          // [rows, steps, in]
  const float* weight_ih = nullptr;  // [4 hidden, in]
  const float* weight_hh = nullptr;  // [4 hidden, hidden]
  const float* bias = nullptr;       // [4 hidden]: the sum of both
  float* gates = nullptr;            // [rows, steps, 4 hidden], activated
  float* cells = nullptr;            // [rows, steps, hidden]; null: not wanted
  float* out = nullptr;              // [rows, steps, hidden]
};
void lstm_forward(const LstmSequenceForward& call, LstmSequenceScratch& scratch);

struct LstmSequenceBackward {
  int64_t rows = 0, steps = 0, in = 0, hidden = 0;
  const float *gates = nullptr, *cells = nullptr, *out_grad = nullptr;
  const float* weight_ih = nullptr;  // null if x_grad is
  const float* weight_hh = nullptr;
  float* gates_grad = nullptr;  // [rows, steps, 4 hidden], before their activation
  float* x_grad = nullptr;      // [rows, steps, in]; null: not wanted
};
void lstm_backward(const LstmSequenceBackward& call, LstmSequenceScratch& scratch);

// One shard's gradient of a weight, [4 hidden, width]: gates_grad [rows, 4 hidden], x [rows, width], where rows are
// those of all steps. The sum goes in blocks of 512 rows.
void lstm_weight_leaf(const float* gates_grad, const float* x, int64_t rows, int64_t gates, int64_t width, float* leaf,
                      LstmSequenceScratch& scratch);

}  // namespace tandem
