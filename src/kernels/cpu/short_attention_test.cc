#include "kernels/cpu/short_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/philox.h"

namespace tandem {
namespace {

std::vector<float> attention_numbers(int64_t n, uint32_t site) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = random_normal({.seed = 9, .site = site}, static_cast<uint64_t>(i));
  return v;
}

struct Heads {
  int64_t rows, heads, queries, keys, size;
  bool causal;
};
const Heads kHeads[] = {{2, 3, 5, 5, 4, false},  {1, 2, 20, 20, 32, true}, {2, 1, 1, 20, 32, false},
                        {3, 2, 7, 33, 5, false}, {1, 1, 1, 1, 1, true},    {1, 2, 64, 64, 64, true}};

// q, k and v as parts of one projection [rows, T, 3, heads, size] where they are equally long.
struct Case {
  explicit Case(const Heads& of)
      : h(of),
        q(attention_numbers(h.rows * h.queries * 3 * h.heads * h.size, 1)),
        k(attention_numbers(h.rows * h.keys * 3 * h.heads * h.size, 2)),
        dy(attention_numbers(h.rows * h.queries * h.heads * h.size, 3)) {}
  template <class Float>
  HeadsView<Float> part(Float* data, int64_t tokens, int64_t which) const {
    const int64_t row = h.heads * h.size;
    return {data + which * row, tokens * 3 * row, h.size, 3 * row};
  }
  HeadsView<const float> out_grad() const {
    return {dy.data(), h.queries * h.heads * h.size, h.size, h.heads * h.size};
  }
  ShortAttention call() const {
    return {h.rows,
            h.heads,
            h.queries,
            h.keys,
            h.size,
            0.4f,
            h.causal,
            part(q.data(), h.queries, 0),
            part(k.data(), h.keys, 1),
            part(k.data(), h.keys, 2)};
  }
  Heads h;
  std::vector<float> q, k, dy;
};

TEST(ShortAttention, AndItsGradientsAreTheFormulasInDouble) {
  for (const Heads& h : kHeads) {
    const Case c(h);
    const ShortAttention call = c.call();
    std::vector<float> weights(h.rows * h.heads * h.queries * h.keys), out(c.dy.size()), dq(c.q.size()), dk(c.k.size());
    const HeadsView<float> to{out.data(), c.out_grad().row, h.size, h.heads * h.size};
    const ShortAttentionGradients grads{c.part(dq.data(), h.queries, 0), c.part(dk.data(), h.keys, 1),
                                        c.part(dk.data(), h.keys, 2)};
    short_attention(call, weights.data(), to);
    short_attention_gradients(call, weights.data(), c.out_grad(), grads);
    for (int64_t r = 0; r < h.rows; ++r)
      for (int64_t head = 0; head < h.heads; ++head) {
        const auto at = [&](const auto& view, int64_t t, int64_t d) { return view.of(r, head)[t * view.token + d]; };
        std::vector<double> want_dk(h.keys * h.size), want_dv(h.keys * h.size);
        for (int64_t i = 0; i < h.queries; ++i) {
          const int64_t count = h.causal ? i + 1 : h.keys;
          std::vector<double> w(count), dw(count);
          double sum = 0, dot = 0;
          for (int64_t j = 0; j < count; ++j) {
            for (int64_t d = 0; d < h.size; ++d) w[j] += 0.4f * double{at(call.q, i, d)} * at(call.k, j, d);
            sum += w[j] = std::exp(w[j]);
          }
          for (int64_t j = 0; j < count; ++j) {
            w[j] /= sum;
            for (int64_t d = 0; d < h.size; ++d) {
              dw[j] += double{at(c.out_grad(), i, d)} * at(call.v, j, d);
              want_dv[j * h.size + d] += w[j] * at(c.out_grad(), i, d);
            }
            dot += w[j] * dw[j];
          }
          for (int64_t d = 0; d < h.size; ++d) {
            double want = 0, want_dq = 0;
            for (int64_t j = 0; j < count; ++j) {
              want += w[j] * at(call.v, j, d);
              const double ds = 0.4f * w[j] * (dw[j] - dot);
              want_dq += ds * at(call.k, j, d);
              want_dk[j * h.size + d] += ds * at(call.q, i, d);
            }
            ASSERT_NEAR(at(to, i, d), want, 1e-5);
            ASSERT_NEAR(at(grads.q, i, d), want_dq, 3e-5);
          }
        }
        for (int64_t j = 0; j < h.keys; ++j)
          for (int64_t d = 0; d < h.size; ++d) {
            ASSERT_NEAR(at(grads.k, j, d), want_dk[j * h.size + d], 5e-5);
            ASSERT_NEAR(at(grads.v, j, d), want_dv[j * h.size + d], 3e-5);
          }
      }
  }
}

TEST(ShortAttention, TheLastQueryAloneHasTheBitsThatItHasAmongAll) {
  const Case c({2, 3, 9, 9, 16, false});
  std::vector<float> weights(2 * 3 * 9 * 9), out(2 * 9 * 3 * 16), last(2 * 3 * 16);
  ShortAttention call = c.call();
  short_attention(call, weights.data(), {out.data(), 9 * 48, 16, 48});
  call.queries = 1;
  call.q.data += 8 * call.q.token;
  short_attention(call, weights.data(), {last.data(), 48, 16, 48});
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(last[r * 48 + i], out[(r * 9 + 8) * 48 + i]);
}

}  // namespace
}  // namespace tandem
