// kernels/gpu/lstm_kernels.cu -- one time step of an LSTM. CPU twins: cpu/lstm_kernels.cc.
//
// A thread has eight neighbouring hidden units of one row: their four gates are four loads of 16 bytes (eight of
// float), `hidden` elements apart. A warp reads 512 neighbouring bytes of each gate (1,024 of float).
#include <initializer_list>

#include "kernels/gpu/launch.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/lstm_kernels.h"
#include "kernels/lstm_math.h"

namespace tandem::cuda {
namespace {

constexpr int kGates = 4, kLstmThreads = 128;

// Which eight units a thread has.
struct LstmUnits {
  int64_t row, first;
  int count;
  bool whole;
};
__device__ __forceinline__ LstmUnits units_of(int64_t vector, int64_t per_row, int64_t hidden, bool aligned) {
  const int64_t row = vector / per_row, first = (vector - row * per_row) * kVector, left = hidden - first;
  const int count = static_cast<int>(left < kVector ? left : kVector);
  return {row, first, count, aligned && count == kVector};
}

template <FloatType kType>
__global__ void __launch_bounds__(kLstmThreads) lstm_forward_kernel(const LstmForwardStep s, bool aligned) {
  const int64_t n = s.hidden, per_row = (n + kVector - 1) / kVector;
  for (int64_t v = first_item(); v < s.rows * per_row; v += item_stride()) {
    const LstmUnits u = units_of(v, per_row, n, aligned);
    const int64_t gate = u.row * s.gates_stride + u.first, out = u.row * s.out_stride + u.first;
    float g[kGates][kVector], before[kVector] = {}, hidden[kVector];
#pragma unroll
    for (int k = 0; k < kGates; ++k) load8(s.gates, kType, gate + k * n, u.count, u.whole, g[k]);
    if (s.cell_before)
      load8(s.cell_before, FloatType::kFloat, u.row * s.cell_before_stride + u.first, u.count, u.whole, before);
    if (s.recurrent) {
      float r[kGates][kVector];
#pragma unroll
      for (int k = 0; k < kGates; ++k)
        load8(s.recurrent, kType, (u.row * kGates + k) * n + u.first, u.count, u.whole, r[k]);
#pragma unroll
      for (int k = 0; k < kGates; ++k)
#pragma unroll
        for (int i = 0; i < kVector; ++i) g[k][i] = g[k][i] + r[k][i];
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const LstmGates a = lstm_activated(g[0][i], g[1][i], g[2][i], g[3][i]);
      before[i] = lstm_cell_state(a, before[i]);
      hidden[i] = lstm_hidden_state(a, before[i]);
      g[0][i] = a.input, g[1][i] = a.forget, g[2][i] = a.cell, g[3][i] = a.output;
    }
    store8(s.cell, FloatType::kFloat, u.row * s.cell_stride + u.first, u.count, u.whole, before);
    store8(s.out, kType, out, u.count, u.whole, hidden);
    if (s.out_copy) store8(s.out_copy, kType, u.row * n + u.first, u.count, u.whole, hidden);
#pragma unroll
    for (int k = 0; k < kGates; ++k) store8(s.gates, kType, gate + k * n, u.count, u.whole, g[k]);
  }
}

template <FloatType kType>
__global__ void __launch_bounds__(kLstmThreads) lstm_backward_kernel(const LstmBackwardStep s, bool aligned) {
  const int64_t n = s.hidden, per_row = (n + kVector - 1) / kVector;
  for (int64_t v = first_item(); v < s.rows * per_row; v += item_stride()) {
    const LstmUnits u = units_of(v, per_row, n, aligned);
    const int64_t gate = u.row * s.gates_stride + u.first, own = u.row * n + u.first,
                  cell_at = u.row * s.cell_stride + u.first;
    float g[kGates][kVector], cell[kVector], before[kVector] = {}, grad[kVector], cell_grad[kVector] = {};
#pragma unroll
    for (int k = 0; k < kGates; ++k) load8(s.gates, kType, gate + k * n, u.count, u.whole, g[k]);
    load8(s.cell, FloatType::kFloat, cell_at, u.count, u.whole, cell);
    load8(s.out_grad, kType, u.row * s.out_grad_stride + u.first, u.count, u.whole, grad);
    if (s.cell_before) load8(s.cell_before, FloatType::kFloat, cell_at, u.count, u.whole, before);
    if (s.hidden_grad) {
      float next[kVector];
      load8(s.hidden_grad, kType, own, u.count, u.whole, next);
      load8(s.cell_grad, FloatType::kFloat, own, u.count, u.whole, cell_grad);
#pragma unroll
      for (int i = 0; i < kVector; ++i) grad[i] = grad[i] + next[i];
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const LstmGradients d =
          lstm_gradients({g[0][i], g[1][i], g[2][i], g[3][i]}, cell[i], before[i], grad[i], cell_grad[i]);
      cell_grad[i] = d.before;
      g[0][i] = d.gates.input, g[1][i] = d.gates.forget, g[2][i] = d.gates.cell, g[3][i] = d.gates.output;
    }
    store8(s.cell_grad, FloatType::kFloat, own, u.count, u.whole, cell_grad);
#pragma unroll
    for (int k = 0; k < kGates; ++k) {
      store8(s.gates_grad, kType, u.row * s.gates_grad_stride + k * n + u.first, u.count, u.whole, g[k]);
      if (s.gates_grad_copy)
        store8(s.gates_grad_copy, kType, (u.row * kGates + k) * n + u.first, u.count, u.whole, g[k]);
    }
  }
}

// Rows and gates that begin at multiples of eight elements.
bool whole_vectors(std::initializer_list<int64_t> elements) {
  return std::all_of(elements.begin(), elements.end(), [](int64_t n) { return n % kVector == 0; });
}

int lstm_grid(int64_t rows, int64_t hidden) {
  const int64_t vectors = rows * ((hidden + kVector - 1) / kVector),
                blocks = (vectors + kLstmThreads - 1) / kLstmThreads;
  return static_cast<int>(std::min<int64_t>(blocks, 8192));
}

void lstm_forward_step(const LstmForwardStep& s, void* stream) {
  if (s.rows <= 0 || s.hidden <= 0) return;
  const bool aligned = aligned16(s.gates, s.recurrent, s.cell_before, s.cell, s.out, s.out_copy) &&
                       whole_vectors({s.hidden, s.gates_stride, s.cell_before_stride, s.cell_stride, s.out_stride});
  const int grid = lstm_grid(s.rows, s.hidden);
  const Stream queue = static_cast<Stream>(stream);
  if (s.type == FloatType::kFloat)
    lstm_forward_kernel<FloatType::kFloat><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  else if (s.type == FloatType::kBFloat16)
    lstm_forward_kernel<FloatType::kBFloat16><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  else
    lstm_forward_kernel<FloatType::kHalf><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  check_launch("lstm forward");
}

void lstm_backward_step(const LstmBackwardStep& s, void* stream) {
  if (s.rows <= 0 || s.hidden <= 0) return;
  const bool aligned = aligned16(s.gates, s.cell, s.cell_before, s.out_grad, s.hidden_grad, s.cell_grad, s.gates_grad,
                                 s.gates_grad_copy) &&
                       whole_vectors({s.hidden, s.gates_stride, s.cell_stride, s.out_grad_stride, s.gates_grad_stride});
  const int grid = lstm_grid(s.rows, s.hidden);
  const Stream queue = static_cast<Stream>(stream);
  if (s.type == FloatType::kFloat)
    lstm_backward_kernel<FloatType::kFloat><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  else if (s.type == FloatType::kBFloat16)
    lstm_backward_kernel<FloatType::kBFloat16><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  else
    lstm_backward_kernel<FloatType::kHalf><<<grid, kLstmThreads, 0, queue>>>(s, aligned);
  check_launch("lstm backward");
}

}  // namespace

const LstmKernels& lstm_kernels() {
  static const LstmKernels kernels{lstm_forward_step, lstm_backward_step};
  return kernels;
}

}  // namespace tandem::cuda
