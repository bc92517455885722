#include "kernels/cpu/lstm_sequence.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/lstm_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kBlockRows = 64;       // rows that go through their steps together
constexpr int64_t kLeafBlockRows = 512;  // part of the order of sums

float* room(LineFloats& memory, int64_t floats) {
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

void forward_block(const LstmSequenceForward& c, int64_t first, int64_t rows, LstmSequenceScratch& scratch) {
  const int64_t n = c.hidden, x_stride = c.steps * c.in, gates_stride = c.steps * 4 * n, state_stride = c.steps * n;
  const float* const x = c.x + first * x_stride;
  float* const gates = c.gates + first * gates_stride;
  float* const out = c.out + first * state_stride;
  float* const cells = c.cells ? c.cells + first * state_stride : room(scratch.cells, kBlockRows * n);
  const int64_t cell_stride = c.cells ? state_stride : n, next_cell = c.cells ? n : 0;
  for (int64_t t = 0; t < c.steps; ++t) {
    float* const step_gates = gates + t * 4 * n;
    gemm(x + t * c.in, x_stride, scratch.input, c.bias, step_gates, gates_stride, rows);
    if (t > 0)
      gemm(out + (t - 1) * n, state_stride, scratch.recurrent, nullptr, step_gates, gates_stride, rows, Write::kAdd);
    LstmKernels::cpu().forward({.rows = rows,
                                .hidden = n,
                                .gates = step_gates,
                                .gates_stride = gates_stride,
                                .cell_before = t > 0 ? cells + (t - 1) * next_cell : nullptr,
                                .cell_before_stride = cell_stride,
                                .cell = cells + t * next_cell,
                                .cell_stride = cell_stride,
                                .out = out + t * n,
                                .out_stride = state_stride},
                               nullptr);
  }
}

void backward_block(const LstmSequenceBackward& c, int64_t first, int64_t rows, LstmSequenceScratch& scratch) {
  const int64_t n = c.hidden, x_stride = c.steps * c.in, gates_stride = c.steps * 4 * n, state_stride = c.steps * n;
  const float* const cells = c.cells + first * state_stride;
  float* const hidden_grad = room(scratch.hidden, kBlockRows * n);
  float* const cell_grad = room(scratch.cells, kBlockRows * n);
  for (int64_t t = c.steps - 1; t >= 0; --t) {
    float* const grads = c.gates_grad + first * gates_stride + t * 4 * n;
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
                                 .gates_grad = grads,
                                 .gates_grad_stride = gates_stride},
                                nullptr);
    // Of the first step no state is asked for, and x may not be.
    const GemmProduct operands[] = {
        {.w = scratch.recurrent, .y = hidden_grad, .y_stride = n},
        {.w = scratch.input, .y = c.x_grad ? c.x_grad + first * x_stride + t * c.in : nullptr, .y_stride = x_stride}};
    gemms(grads, gates_stride, std::span(operands).subspan(t > 0 ? 0 : 1, (t > 0 ? 1 : 0) + (c.x_grad ? 1 : 0)), rows);
  }
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

void lstm_weight_leaves(const LstmSequenceLeaves& call, LstmSequenceScratch& scratch) {
  constexpr int kNoMerge = 0;
  const int64_t rows = call.rows * call.steps, gates = 4 * call.hidden;
  const auto zeros = [&](float* leaf, int64_t width) {
    if (rows == 0 && leaf) std::fill_n(leaf, gates * width, 0.0f);
  };
  zeros(call.leaf_ih, call.in);
  zeros(call.leaf_hh, call.hidden);
  for (int64_t row = 0; row < rows; row += kLeafBlockRows) {
    std::array<GradientInput, 2> inputs;
    size_t wanted = 0;
    if (call.leaf_ih)
      inputs[wanted++] = {.x = call.x + row * call.in, .x_stride = call.in, .in = call.in, .w_grad = call.leaf_ih};
    if (call.leaf_hh)
      inputs[wanted++] = {.x = call.out + row * call.hidden,
                          .x_stride = call.hidden,
                          .in = call.hidden,
                          .w_grad = call.leaf_hh,
                          .steps = call.steps,
                          .first_step = row % call.steps};
    weight_gradients(call.gates_grad + row * gates, gates, {inputs.data(), wanted}, gates,
                     std::min(kLeafBlockRows, rows - row), {&kNoMerge, 1}, row == 0 ? Write::kSet : Write::kAdd,
                     scratch.weights);
  }
}

}  // namespace tandem
