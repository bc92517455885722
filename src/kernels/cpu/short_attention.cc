#include "kernels/cpu/short_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/cpu/gemm.h"
#include "kernels/softmax_math.h"

namespace tandem {
namespace {

struct HeadMemory {
  Panels keys, values;
  WeightGradientScratch scratch;
  LineFloats score_grads;
};
HeadMemory& head_memory() {
  static thread_local HeadMemory memory;
  return memory;
}

// Scores become weights, in place: [queries, keys].
__attribute__((always_inline)) inline void softmax_rows(const ShortAttention& call, float* scores) {
  for (int64_t i = 0; i < call.queries; ++i) {
    float* const row = scores + i * call.keys;
    const int64_t count = call.causal ? i + 1 : call.keys;
    float most = row[0] * call.scale, sum = 0;
    TANDEM_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) row[j] *= call.scale;
    for (int64_t j = 1; j < count; ++j) most = row[j] > most ? row[j] : most;
    TANDEM_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) row[j] = softmax_exp(row[j] - most);
    for (int64_t j = 0; j < count; ++j) sum += row[j];
    TANDEM_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) row[j] /= sum;
    std::fill(row + count, row + call.keys, 0.0f);
  }
}

// grads: of the weights, and then of what the softmax was given, before its scale.
__attribute__((always_inline)) inline void softmax_gradient_rows(const ShortAttention& call, const float* weights,
                                                                 float* grads) {
  for (int64_t i = 0; i < call.queries; ++i) {
    const float* const w = weights + i * call.keys;
    float *const g = grads + i * call.keys, sum = 0;
    for (int64_t j = 0; j < call.keys; ++j) sum += w[j] * g[j];
    TANDEM_INDEPENDENT
    for (int64_t j = 0; j < call.keys; ++j) g[j] = w[j] * (g[j] - sum) * call.scale;
  }
}

// to [keys, size] = of_queries^T x, of_queries [queries, keys].
void transposed_product(const ShortAttention& call, const float* of_queries, const float* x, int64_t x_token, float* to,
                        int64_t to_token, WeightGradientScratch& scratch) {
  constexpr int kNoMerge = 0;
  const GradientInput input{.x = x, .x_stride = x_token, .in = call.size, .w_grad = to, .w_stride = to_token};
  weight_gradients(of_queries, call.keys, {&input, 1}, call.keys, call.queries, {&kNoMerge, 1}, Write::kSet, scratch);
}

}  // namespace

void short_attention(const ShortAttention& call, float* weights, const HeadsView<float>& out) {
  HeadMemory& memory = head_memory();
  for (int64_t row = 0; row < call.rows; ++row)
    for (int64_t head = 0; head < call.heads; ++head, weights += call.queries * call.keys) {
      memory.keys.pack_transposed(call.k.of(row, head), call.size, call.keys, call.k.token);
      gemm(call.q.of(row, head), call.q.token, memory.keys, nullptr, weights, call.keys, call.queries);
      run_with_fma([&]() TANDEM_INLINE_LAMBDA { softmax_rows(call, weights); });
      memory.values.pack(call.v.of(row, head), call.keys, call.size, call.v.token);
      gemm(weights, call.keys, memory.values, nullptr, out.of(row, head), out.token, call.queries);
    }
}

void short_attention_gradients(const ShortAttention& call, const float* weights, const HeadsView<const float>& out_grad,
                               const ShortAttentionGradients& to) {
  HeadMemory& memory = head_memory();
  memory.score_grads.resize(static_cast<size_t>(call.queries * call.keys));
  float* const grads = memory.score_grads.data();
  for (int64_t row = 0; row < call.rows; ++row)
    for (int64_t head = 0; head < call.heads; ++head, weights += call.queries * call.keys) {
      const float* const dy = out_grad.of(row, head);
      memory.keys.pack_transposed(call.v.of(row, head), call.size, call.keys, call.v.token);
      gemm(dy, out_grad.token, memory.keys, nullptr, grads, call.keys, call.queries);
      run_with_fma([&]() TANDEM_INLINE_LAMBDA { softmax_gradient_rows(call, weights, grads); });
      memory.values.pack(call.k.of(row, head), call.keys, call.size, call.k.token);
      gemm(grads, call.keys, memory.values, nullptr, to.q.of(row, head), to.q.token, call.queries);
      transposed_product(call, grads, call.q.of(row, head), call.q.token, to.k.of(row, head), to.k.token,
                         memory.scratch);
      transposed_product(call, weights, dy, out_grad.token, to.v.of(row, head), to.v.token, memory.scratch);
    }
}

}  // namespace tandem
