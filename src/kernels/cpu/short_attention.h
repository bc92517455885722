// kernels/cpu/short_attention.h -- attention in fp32 on a CPU where all of a head fits the L1 cache: softmax(q k^T) v.
//
// One head of one row after the other, by kernels/cpu/gemm.h, read and written where they lie in a projection. Every
// sum goes in the order of its index, so a row's bits do not depend on the rows beside it, nor a query's on those
// beside it.
#pragma once

#include <cstdint>

namespace tandem {

// [rows, heads, tokens, size]: `row`, `head` and `token` floats apart, the last dimension without gaps.
template <class Float>
struct HeadsView {
  Float* data = nullptr;
  int64_t row = 0, head = 0, token = 0;
  Float* of(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

struct ShortAttention {
  int64_t rows = 0, heads = 0, queries = 0, keys = 0, size = 0;
  float scale = 1;
  bool causal = false;  // query t attends to keys 0 to t
  HeadsView<const float> q, k, v;
};

// weights [rows, heads, queries, keys] are what backward needs.
void short_attention(const ShortAttention& call, float* weights, const HeadsView<float>& out);

struct ShortAttentionGradients {
  HeadsView<float> q, k, v;
};
void short_attention_gradients(const ShortAttention& call, const float* weights, const HeadsView<const float>& out_grad,
                               const ShortAttentionGradients& gradients);

}  // namespace tandem
