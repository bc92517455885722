#include "kernels/cpu/lstm_sequence.h"

#include <algorithm>

#include "kernels/lstm_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kBlockRows = 32;       // rows that go through their steps together
constexpr int64_t kLeafBlockRows = 512;  // part of the order of sums

float* room(LineFloats& memory, int64_t floats) {
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

void forward_block(const LstmSequenceForward& c, int64_t first, int64_t rows, LstmSequenceScratch& scratch) {
  const int64_t n = c.hidden, gates_stride = c.steps * 4 * n, state_stride = c.steps * n;
  float* const gates = c.gates + first * gates_stride;
  float* const out = c.out + first * state_stride;
  float* const cells = c.cells ? c.cells + first * state_stride : room(scratch.cells, kBlockRows * n);
  const int64_t cell_stride = c.cells ? state_stride : n, next_cell = c.cells ? n : 0;
  float* const hidden = room(scratch.hidden, kBlockRows * n);
  float* const recurrent = room(scratch.gates, kBlockRows * 4 * n);
  gemm(c.x + first * c.steps * c.in, c.in, scratch.input, c.bias, gates, 4 * n, rows * c.steps);
  for (int64_t t = 0; t < c.steps; ++t) {
    if (t > 0) gemm(hidden, n, scratch.recurrent, nullptr, recurrent, 4 * n, rows);
    LstmKernels::cpu().forward({.rows = rows,
                                .hidden = n,
                                .gates = gates + t * 4 * n,
                                .gates_stride = gates_stride,
                                .recurrent = t > 0 ? recurrent : nullptr,
                                .cell_before = t > 0 ? cells + (t - 1) * next_cell : nullptr,
                                .cell_before_stride = cell_stride,
                                .cell = cells + t * next_cell,
                                .cell_stride = cell_stride,
                                .out = out + t * n,
                                .out_stride = state_stride,
                                .out_copy = hidden},
                               nullptr);
  }
}

void backward_block(const LstmSequenceBackward& c, int64_t first, int64_t rows, LstmSequenceScratch& scratch) {
  const int64_t n = c.hidden, gates_stride = c.steps * 4 * n, state_stride = c.steps * n;
  const float* const cells = c.cells + first * state_stride;
  float* const grads = c.gates_grad + first * gates_stride;
  float* const hidden_grad = room(scratch.hidden, kBlockRows * n);
  float* const cell_grad = room(scratch.cells, kBlockRows * n);
  float* const step_grads = room(scratch.gates, kBlockRows * 4 * n);
  for (int64_t t = c.steps - 1; t >= 0; --t) {
    LstmKernels::cpu().backward({.rows = rows,
                                 .hidden = n,
                                 .gates = c.gates + first * gates_stride + t * 4 * n,
                                 .gates_stride = gates_stride,
                                 .cell = cells + t * n,
                                 .cell_before = t > 0 ? cells + (t - 1) * n : nullptr,
                                 .cell_stride = state_stride,
                                 .out_grad = c.out_grad + first * state_stride + t * n,
                                 .out_grad_stride = state_stride,
                                 .hidden_grad = t + 1 < c.steps ? hidden_grad : nullptr,
                                 .cell_grad = cell_grad,
                                 .gates_grad = grads + t * 4 * n,
                                 .gates_grad_stride = gates_stride,
                                 .gates_grad_copy = t > 0 ? step_grads : nullptr},
                                nullptr);
    if (t > 0) gemm(step_grads, 4 * n, scratch.recurrent, nullptr, hidden_grad, n, rows);
  }
  if (c.x_grad) gemm(grads, 4 * n, scratch.input, nullptr, c.x_grad + first * c.steps * c.in, c.in, rows * c.steps);
}

}  // namespace

void lstm_forward(const LstmSequenceForward& call, LstmSequenceScratch& scratch) {
  scratch.input.pack_transposed(call.weight_ih, call.in, 4 * call.hidden);
  scratch.recurrent.pack_transposed(call.weight_hh, call.hidden, 4 * call.hidden);
  for (int64_t row = 0; row < call.rows; row += kBlockRows)
    forward_block(call, row, std::min(kBlockRows, call.rows - row), scratch);
}

void lstm_backward(const LstmSequenceBackward& call, LstmSequenceScratch& scratch) {
  if (call.x_grad) scratch.input.pack(call.weight_ih, 4 * call.hidden, call.in);
  scratch.recurrent.pack(call.weight_hh, 4 * call.hidden, call.hidden);
  for (int64_t row = 0; row < call.rows; row += kBlockRows)
    backward_block(call, row, std::min(kBlockRows, call.rows - row), scratch);
}

void lstm_weight_leaf(const float* gates_grad, const float* x, int64_t rows, int64_t gates, int64_t width, float* leaf,
                      LstmSequenceScratch& scratch) {
  constexpr int kNoMerge = 0;
  if (rows == 0) std::fill_n(leaf, gates * width, 0.0f);
  for (int64_t row = 0; row < rows; row += kLeafBlockRows)
    weight_gradient(gates_grad + row * gates, gates, x + row * width, width, leaf, gates, width,
                    std::min(kLeafBlockRows, rows - row), {&kNoMerge, 1}, row == 0 ? Write::kSet : Write::kAdd,
                    scratch.weights);
}

}  // namespace tandem
