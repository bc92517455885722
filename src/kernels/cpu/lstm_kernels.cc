// kernels/cpu/lstm_kernels.cc -- CPU twins of gpu/lstm_kernels.cu.
#include "kernels/lstm_kernels.h"

#include <type_traits>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/lstm_math.h"

namespace tandem {
namespace {

// body(...) with the type and both flags as compile-time constants: no branch is left in the loop.
template <class Body>
void with_lstm_type(FloatType type, const Body& body) {
  using T = FloatType;
  if (type == T::kFloat) return body(std::integral_constant<T, T::kFloat>{});
  if (type == T::kBFloat16) return body(std::integral_constant<T, T::kBFloat16>{});
  body(std::integral_constant<T, T::kHalf>{});
}
template <class Body>
void with_lstm_flags(bool first, bool second, const Body& body) {
  if (first && second) return body(std::true_type{}, std::true_type{});
  if (first) return body(std::true_type{}, std::false_type{});
  if (second) return body(std::false_type{}, std::true_type{});
  body(std::false_type{}, std::false_type{});
}

template <FloatType kType, bool kHasBefore, bool kHasRecurrent>
__attribute__((always_inline)) inline void lstm_forward_rows(const LstmForwardStep& s) {
  const int64_t n = s.hidden;
  const auto sum = [&](int64_t at, int64_t recurrent_at) TANDEM_INLINE_LAMBDA {
    const float x = load_float(s.gates, kType, at);
    return kHasRecurrent ? x + load_float(s.recurrent, kType, recurrent_at) : x;
  };
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t gate = row * s.gates_stride, recurrent = row * 4 * n, out = row * s.out_stride;
    const float* const before = s.cell_before + row * s.cell_before_stride;
    float* const cell = s.cell + row * s.cell_stride;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const LstmGates g =
          lstm_activated(sum(gate + i, recurrent + i), sum(gate + n + i, recurrent + n + i),
                         sum(gate + 2 * n + i, recurrent + 2 * n + i), sum(gate + 3 * n + i, recurrent + 3 * n + i));
      const float state = lstm_cell_state(g, kHasBefore ? before[i] : 0.0f);
      cell[i] = state;
      store_float(s.gates, kType, gate + i, g.input);
      store_float(s.gates, kType, gate + n + i, g.forget);
      store_float(s.gates, kType, gate + 2 * n + i, g.cell);
      store_float(s.gates, kType, gate + 3 * n + i, g.output);
      store_float(s.out, kType, out + i, lstm_hidden_state(g, state));
    }
    if (!s.out_copy) continue;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) store_float(s.out_copy, kType, row * n + i, load_float(s.out, kType, out + i));
  }
}

template <FloatType kType, bool kHasBefore, bool kHasNext>
__attribute__((always_inline)) inline void lstm_backward_rows(const LstmBackwardStep& s) {
  const int64_t n = s.hidden;
  for (int64_t row = 0; row < s.rows; ++row) {
    const int64_t gate = row * s.gates_stride, to = row * s.gates_grad_stride, out = row * s.out_grad_stride;
    const float* const cell = s.cell + row * s.cell_stride;
    const float* const before = s.cell_before + row * s.cell_stride;
    float* const cell_grad = s.cell_grad + row * n;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const LstmGates g{load_float(s.gates, kType, gate + i), load_float(s.gates, kType, gate + n + i),
                        load_float(s.gates, kType, gate + 2 * n + i), load_float(s.gates, kType, gate + 3 * n + i)};
      const float own = load_float(s.out_grad, kType, out + i);
      const float hidden_grad = kHasNext ? own + load_float(s.hidden_grad, kType, row * n + i) : own;
      const LstmGradients d =
          lstm_gradients(g, cell[i], kHasBefore ? before[i] : 0.0f, hidden_grad, kHasNext ? cell_grad[i] : 0.0f);
      cell_grad[i] = d.before;
      store_float(s.gates_grad, kType, to + i, d.gates.input);
      store_float(s.gates_grad, kType, to + n + i, d.gates.forget);
      store_float(s.gates_grad, kType, to + 2 * n + i, d.gates.cell);
      store_float(s.gates_grad, kType, to + 3 * n + i, d.gates.output);
    }
    if (!s.gates_grad_copy) continue;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < 4 * n; ++i)
      store_float(s.gates_grad_copy, kType, row * 4 * n + i, load_float(s.gates_grad, kType, to + i));
  }
}

void lstm_forward_step(const LstmForwardStep& step, void* /*stream*/) {
  with_lstm_type(step.type, [&](auto type) {
    with_lstm_flags(step.cell_before != nullptr, step.recurrent != nullptr, [&](auto before, auto recurrent) {
      run_with_fma([&]() TANDEM_INLINE_LAMBDA {
        lstm_forward_rows<decltype(type)::value, decltype(before)::value, decltype(recurrent)::value>(step);
      });
    });
  });
}

void lstm_backward_step(const LstmBackwardStep& step, void* /*stream*/) {
  with_lstm_type(step.type, [&](auto type) {
    with_lstm_flags(step.cell_before != nullptr, step.hidden_grad != nullptr, [&](auto before, auto next) {
      run_with_fma([&]() TANDEM_INLINE_LAMBDA {
        lstm_backward_rows<decltype(type)::value, decltype(before)::value, decltype(next)::value>(step);
      });
    });
  });
}

}  // namespace

const LstmKernels& LstmKernels::cpu() {
  static const LstmKernels kernels{lstm_forward_step, lstm_backward_step};
  return kernels;
}

}  // namespace tandem
