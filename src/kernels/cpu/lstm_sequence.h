// kernels/cpu/lstm_sequence.h -- whole sequences of an fp32 LSTM on a CPU whose weights fit the caches.
//
// The weights are packed once for all steps (cpu/gemm.h), and a block of rows goes through all its steps before the
// next one begins: the gates of one step stay in the L2 cache from the GEMMs to the cells, and packed weights, which
// come from L3, serve many rows. A row's bits do not depend on the rows beside it. Arrays are contiguous and batch
// first; gates and their weights are in the order of lstm_kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"

namespace tandem {

// Kept by the caller from call to call.
struct LstmSequenceScratch {
  Panels input, recurrent;
  WeightGradientScratch weights;
  LineFloats hidden, cells;
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

// The gradients of one shard's weights: gates_grad [rows, steps, 4 hidden], x and out as above. The sums go in blocks
// of 512 rows of all steps.
struct LstmSequenceLeaves {
  int64_t rows = 0, steps = 0, in = 0, hidden = 0;
  const float *gates_grad = nullptr, *x = nullptr, *out = nullptr;
  float* leaf_ih = nullptr;  // [4 hidden, in]; null: not wanted
  float* leaf_hh = nullptr;  // [4 hidden, hidden]; null: not wanted
};
void lstm_weight_leaves(const LstmSequenceLeaves& call, LstmSequenceScratch& scratch);

}  // namespace tandem
