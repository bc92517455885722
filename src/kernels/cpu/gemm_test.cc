#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/philox.h"

namespace tandem {
namespace {

std::vector<float> numbers(int64_t n, uint32_t site) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = random_normal({.seed = 5, .site = site}, static_cast<uint64_t>(i));
  return v;
}

struct Shape {
  int64_t m, k, n;
};
// Rows: less than a tile, tiles of several heights, and more than a block; columns: parts of a panel, blocks of panels.
const Shape kShapes[] = {{32, 128, 512}, {8, 1, 1},   {1, 7, 33},  {13, 64, 10},   {5, 20, 95},
                         {64, 17, 32},   {15, 3, 47}, {29, 16, 5}, {131, 33, 160}, {3, 2100, 70}};

TEST(Gemm, MatchesDoublePrecisionWithinRounding) {
  for (const auto [m, k, n] : kShapes)
    for (const CpuVariant variant : runnable_cpu_variants()) {
      const auto x = numbers(m * k, 1), w = numbers(k * n, 2), bias = numbers(n, 3);
      Panels straight, transposed;
      straight.pack(w.data(), k, n);
      std::vector<float> other(w.size());
      for (int64_t p = 0; p < k; ++p)
        for (int64_t c = 0; c < n; ++c) other[c * k + p] = w[p * n + c];
      transposed.pack_transposed(other.data(), k, n);
      std::vector<float> y(m * n), again(m * n);
      gemm(x.data(), k, straight, bias.data(), y.data(), n, m, Write::kSet, variant);
      gemm(x.data(), k, transposed, bias.data(), again.data(), n, m, Write::kSet, variant);
      EXPECT_EQ(std::memcmp(y.data(), again.data(), y.size() * 4), 0);
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < n; ++c) {
          double want = bias[c], size = std::abs(bias[c]);
          for (int64_t p = 0; p < k; ++p) {
            want += double{x[r * k + p]} * w[p * n + c];
            size += std::abs(double{x[r * k + p]} * w[p * n + c]);
          }
          ASSERT_NEAR(y[r * n + c], want, size * 1e-6) << m << " " << k << " " << n;
        }
    }
}

TEST(Gemm, BitsOfARowDoNotDependOnTheOtherRows) {
  const int64_t k = 100, m = 8 * 32;
  for (const int64_t n : {20, 32, 70}) {  // one panel, and several
    const auto x = numbers(m * k, 1), w = numbers(k * n, 2);
    Panels panels;
    panels.pack(w.data(), k, n);
    for (const CpuVariant variant : runnable_cpu_variants()) {
      std::vector<float> whole(m * n);
      gemm(x.data(), k, panels, nullptr, whole.data(), n, m, Write::kSet, variant);
      for (const int64_t rows : {1, 2, 5, 8, 32, 64, 160}) {
        std::vector<float> part(m * n);
        for (int64_t r = 0; r < m; r += rows)
          gemm(x.data() + r * k, k, panels, nullptr, part.data() + r * n, n, std::min(rows, m - r), Write::kSet,
               variant);
        EXPECT_EQ(std::memcmp(part.data(), whole.data(), whole.size() * 4), 0) << n << " columns, " << rows << " rows";
      }
    }
  }
}

// Element by element: the chain that the header promises, whatever the tiles.
TEST(Gemm, AnElementIsOneChainOfFusedMultiplyAdds) {
  for (const auto [m, k, n] : kShapes)
    for (const CpuVariant variant : runnable_cpu_variants()) {
#if defined(__x86_64__)
      if (variant == CpuVariant::kPlain) continue;
#endif
      const int64_t x_stride = k + 3, y_stride = n + 2;
      const auto x = numbers(m * x_stride, 1), w = numbers(k * n, 2), bias = numbers(n, 3),
                 first = numbers(m * y_stride, 4);
      Panels panels;
      panels.pack(w.data(), k, n);
      std::vector<float> set = first, added = first;
      gemm(x.data(), x_stride, panels, bias.data(), set.data(), y_stride, m, Write::kSet, variant);
      gemm(x.data(), x_stride, panels, nullptr, added.data(), y_stride, m, Write::kAdd, variant);
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < y_stride; ++c) {
          const int64_t at = r * y_stride + c;
          float sum = 0;
          for (int64_t p = 0; p < k && c < n; ++p) sum = std::fma(x[r * x_stride + p], w[p * n + c], sum);
          ASSERT_EQ(set[at], c < n ? sum + bias[c] : first[at]) << m << " " << k << " " << n;
          ASSERT_EQ(added[at], c < n ? first[at] + sum : first[at]) << m << " " << k << " " << n;
        }
    }
}

TEST(Gemm, WeightGradientAccumulatesIntoItsOutput) {
  const int alone[] = {0};
  for (const auto [rows, in, out] : kShapes)
    for (const CpuVariant variant : runnable_cpu_variants()) {
      const int64_t x_stride = in + 3, y_grad_stride = out + 5;
      const auto x = numbers(rows * x_stride, 1), y_grad = numbers(rows * y_grad_stride, 2),
                 first = numbers(out * in, 3);
      std::vector<float> sum = first;
      WeightGradientScratch scratch;
      weight_gradient(y_grad.data(), y_grad_stride, x.data(), x_stride, sum.data(), out, in, rows, alone, Write::kAdd,
                      scratch, variant);
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) {
          double want = first[o * in + i], size = std::abs(want);
          for (int64_t r = 0; r < rows; ++r) {
            want += double{y_grad[r * y_grad_stride + o]} * x[r * x_stride + i];
            size += std::abs(double{y_grad[r * y_grad_stride + o]} * x[r * x_stride + i]);
          }
          ASSERT_NEAR(sum[o * in + i], want, size * 1e-6);
        }
    }
}

TEST(Gemm, WeightGradientOfShardsIsTheTreeSumOfTheirs) {
  const int64_t rows = 9, out = 21, in = 70, shards = 6;  // (0 1 2) (3 4 5)
  const std::vector<int> merges{0, 1, 1, 0, 1, 2};
  const auto y_grad = numbers(shards * rows * out, 1), x = numbers(shards * rows * in, 2);
  for (const CpuVariant variant : runnable_cpu_variants()) {
    WeightGradientScratch scratch;
    const auto gradient_of = [&](int64_t first, std::span<const int> merges_of_shards) {
      std::vector<float> sum(out * in, NAN);
      weight_gradient(y_grad.data() + first * rows * out, out, x.data() + first * rows * in, in, sum.data(), out, in,
                      rows, merges_of_shards, Write::kSet, scratch, variant);
      return sum;
    };
    std::vector<std::vector<float>> p;
    for (int64_t shard = 0; shard < shards; ++shard) p.push_back(gradient_of(shard, std::vector{0}));
    const std::vector<float> whole = gradient_of(0, merges);
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(whole[i], ((p[0][i] + p[1][i]) + p[2][i]) + ((p[3][i] + p[4][i]) + p[5][i]));
  }
}

// What a recurrent layer knew before each step is its output one row earlier, and 0 where a sequence begins.
TEST(Gemm, WeightGradientsOfAnInputAndOfTheStatesBeforeEachStepAreThoseOfTwoCalls) {
  const int64_t rows = 31, out = 37, in = 70, hidden = 45, steps = 7, first_step = 3;
  const std::vector<int> merges{0};
  const auto y_grad = numbers(rows * out, 1), x = numbers(rows * in, 2), states = numbers((rows + 1) * hidden, 3);
  std::vector<float> before(states.begin(), states.end() - hidden);
  for (int64_t r = 0; r < rows; ++r)
    if ((first_step + r) % steps == 0) std::fill_n(before.data() + r * hidden, hidden, 0.0f);
  for (const CpuVariant variant : runnable_cpu_variants()) {
    WeightGradientScratch scratch;
    std::vector<float> ih(out * in, NAN), hh(out * hidden, NAN), ih_alone = ih, hh_alone = hh;
    const GradientInput inputs[] = {{.x = x.data(), .x_stride = in, .in = in, .w_grad = ih.data()},
                                    {.x = states.data() + hidden,
                                     .x_stride = hidden,
                                     .in = hidden,
                                     .w_grad = hh.data(),
                                     .steps = steps,
                                     .first_step = first_step}};
    weight_gradients(y_grad.data(), out, inputs, out, rows, merges, Write::kSet, scratch, variant);
    weight_gradient(y_grad.data(), out, x.data(), in, ih_alone.data(), out, in, rows, merges, Write::kSet, scratch,
                    variant);
    weight_gradient(y_grad.data(), out, before.data(), hidden, hh_alone.data(), out, hidden, rows, merges, Write::kSet,
                    scratch, variant);
    EXPECT_EQ(ih, ih_alone);
    EXPECT_EQ(hh, hh_alone);
  }
}

TEST(Gemm, HasTheSameBitsInEveryVariantWithFma) {
  std::vector<std::vector<float>> results;
  const int64_t rows = 21, k = 130, n = 77;
  const auto x = numbers(rows * k, 1), w = numbers(k * n, 2), y_grad = numbers(rows * n, 3);
  Panels panels;
  panels.pack(w.data(), k, n);
  for (const CpuVariant variant : runnable_cpu_variants()) {
#if defined(__x86_64__)
    if (variant == CpuVariant::kPlain) continue;
#endif
    std::vector<float> y(rows * n), sum(n * k);
    gemm(x.data(), k, panels, nullptr, y.data(), n, rows, Write::kSet, variant);
    WeightGradientScratch scratch;
    weight_gradient(y_grad.data(), n, x.data(), k, sum.data(), n, k, rows / 3, std::vector{0, 1, 1}, Write::kSet,
                    scratch, variant);
    y.insert(y.end(), sum.begin(), sum.end());
    results.push_back(y);
  }
  for (const auto& result : results) EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * 4), 0);
}

}  // namespace
}  // namespace tandem
