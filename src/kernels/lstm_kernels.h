// kernels/lstm_kernels.h -- one time step of an LSTM for all rows, beside the GEMMs: gates, cell and hidden state, and
// their gradients, one kernel each.
//
// CPU and CUDA give equal bits. A row has 4 x `hidden` gates, in the order input, forget, cell, output. Rows of an
// array lie `..._stride` elements apart, so an array may be one step of [rows, steps, ...]. Numbers are of `type`, the
// cell state and its gradient float. On a GPU, `stream` is a cudaStream_t and every call only queues work.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

struct LstmForwardStep {
  int64_t rows = 0, hidden = 0;
  FloatType type = FloatType::kFloat;
  void* gates = nullptr;  // in: the input's part, with both biases; out: activated
  int64_t gates_stride = 0;
  const void* recurrent = nullptr;     // [rows, 4 hidden]: the hidden state's part; null: 0
  const float* cell_before = nullptr;  // null: 0. May be `cell`
  int64_t cell_before_stride = 0;
  float* cell = nullptr;
  int64_t cell_stride = 0;
  void* out = nullptr;  // the hidden state
  int64_t out_stride = 0;
  void* out_copy = nullptr;  // [rows, hidden]: the same for the next step's GEMM; null: not wanted
};

struct LstmBackwardStep {
  int64_t rows = 0, hidden = 0;
  FloatType type = FloatType::kFloat;
  const void* gates = nullptr;  // activated
  int64_t gates_stride = 0;
  const float *cell = nullptr, *cell_before = nullptr;  // cell_before null: 0
  int64_t cell_stride = 0;                              // of both
  const void* out_grad = nullptr;
  int64_t out_grad_stride = 0;
  const void* hidden_grad = nullptr;  // [rows, hidden]: from the next step; null: this is the last one
  float* cell_grad = nullptr;  // [rows, hidden]; in: from the next step, if there is one; out: for the one before
  void* gates_grad = nullptr;
  int64_t gates_grad_stride = 0;
  void* gates_grad_copy = nullptr;  // [rows, 4 hidden]: the same for the GEMM; null: not wanted
};

struct LstmKernels {
  static constexpr KernelTableId kId{"lstm", 1};
  static const LstmKernels& cpu();

  void (*forward)(const LstmForwardStep&, void* stream);
  void (*backward)(const LstmBackwardStep&, void* stream);
};

namespace cuda {
const LstmKernels& lstm_kernels();
}  // namespace cuda

}  // namespace tandem
