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
  int64_t rows, depth, width;
};
const Shape kShapes[] = {{32, 128, 512}, {8, 1, 1}, {1, 7, 33}, {13, 64, 10}, {5, 20, 95}, {64, 17, 32}};

TEST(Gemm, MatchesDoublePrecisionWithinRounding) {
  for (const auto [rows, depth, width] : kShapes)
    for (const CpuVariant variant : runnable_cpu_variants()) {
      const auto x = numbers(rows * depth, 1), w = numbers(depth * width, 2), bias = numbers(width, 3);
      Panels straight, transposed;
      straight.pack(w.data(), depth, width);
      std::vector<float> other(w.size());
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t c = 0; c < width; ++c) other[c * depth + k] = w[k * width + c];
      transposed.pack_transposed(other.data(), depth, width);
      std::vector<float> y(rows * width), again(rows * width);
      gemm(x.data(), depth, straight, bias.data(), y.data(), width, rows, variant);
      gemm(x.data(), depth, transposed, bias.data(), again.data(), width, rows, variant);
      EXPECT_EQ(std::memcmp(y.data(), again.data(), y.size() * 4), 0);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < width; ++c) {
          double want = bias[c], size = std::abs(bias[c]);
          for (int64_t k = 0; k < depth; ++k) {
            want += double{x[r * depth + k]} * w[k * width + c];
            size += std::abs(double{x[r * depth + k]} * w[k * width + c]);
          }
          ASSERT_NEAR(y[r * width + c], want, size * 1e-6) << rows << " " << depth << " " << width;
        }
    }
}

TEST(Gemm, BitsOfARowDoNotDependOnTheOtherRows) {
  const int64_t depth = 100, width = 70, most = 8 * 32;
  const auto x = numbers(most * depth, 1), w = numbers(depth * width, 2);
  Panels panels;
  panels.pack(w.data(), depth, width);
  for (const CpuVariant variant : runnable_cpu_variants()) {
    std::vector<float> whole(most * width);
    gemm(x.data(), depth, panels, nullptr, whole.data(), width, most, variant);
    for (const int64_t rows : {1, 2, 5, 8, 32, 64, 160}) {
      std::vector<float> part(most * width);
      for (int64_t r = 0; r < most; r += rows)
        gemm(x.data() + r * depth, depth, panels, nullptr, part.data() + r * width, width, std::min(rows, most - r),
             variant);
      EXPECT_EQ(std::memcmp(part.data(), whole.data(), whole.size() * 4), 0) << rows << " rows at a time";
    }
  }
}

TEST(Gemm, WeightGradientAccumulatesIntoItsOutput) {
  const int alone[] = {0};
  for (const auto [rows, in, out] : kShapes)
    for (const CpuVariant variant : runnable_cpu_variants()) {
      const int64_t x_stride = in + 3, dy_stride = out + 5;
      const auto x = numbers(rows * x_stride, 1), dy = numbers(rows * dy_stride, 2), first = numbers(out * in, 3);
      std::vector<float> sum = first;
      WeightGradientScratch scratch;
      weight_gradient(dy.data(), dy_stride, x.data(), x_stride, sum.data(), out, in, rows, alone, Write::kAdd, scratch,
                      variant);
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) {
          double want = first[o * in + i], size = std::abs(want);
          for (int64_t r = 0; r < rows; ++r) {
            want += double{dy[r * dy_stride + o]} * x[r * x_stride + i];
            size += std::abs(double{dy[r * dy_stride + o]} * x[r * x_stride + i]);
          }
          ASSERT_NEAR(sum[o * in + i], want, size * 1e-6);
        }
    }
}

TEST(Gemm, WeightGradientOfShardsIsTheTreeSumOfTheirs) {
  const int64_t rows = 9, out = 21, in = 70, shards = 6;  // (0 1 2) (3 4 5)
  const std::vector<int> merges{0, 1, 1, 0, 1, 2};
  const auto dy = numbers(shards * rows * out, 1), x = numbers(shards * rows * in, 2);
  for (const CpuVariant variant : runnable_cpu_variants()) {
    WeightGradientScratch scratch;
    const auto gradient_of = [&](int64_t first, std::span<const int> along) {
      std::vector<float> sum(out * in, NAN);
      weight_gradient(dy.data() + first * rows * out, out, x.data() + first * rows * in, in, sum.data(), out, in, rows,
                      along, Write::kSet, scratch, variant);
      return sum;
    };
    std::vector<std::vector<float>> p;
    for (int64_t shard = 0; shard < shards; ++shard) p.push_back(gradient_of(shard, std::vector{0}));
    const std::vector<float> whole = gradient_of(0, merges);
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(whole[i], ((p[0][i] + p[1][i]) + p[2][i]) + ((p[3][i] + p[4][i]) + p[5][i]));
  }
}

TEST(Gemm, HasTheSameBitsInEveryVariantWithFma) {
  std::vector<std::vector<float>> results;
  const int64_t rows = 21, depth = 130, width = 77;
  const auto x = numbers(rows * depth, 1), w = numbers(depth * width, 2), dy = numbers(rows * width, 3);
  Panels panels;
  panels.pack(w.data(), depth, width);
  for (const CpuVariant variant : runnable_cpu_variants()) {
#if defined(__x86_64__)
    if (variant == CpuVariant::kPlain) continue;
#endif
    std::vector<float> y(rows * width), sum(width * depth);
    gemm(x.data(), depth, panels, nullptr, y.data(), width, rows, variant);
    WeightGradientScratch scratch;
    weight_gradient(dy.data(), width, x.data(), depth, sum.data(), width, depth, rows / 3, std::vector{0, 1, 1},
                    Write::kSet, scratch, variant);
    y.insert(y.end(), sum.begin(), sum.end());
    results.push_back(y);
  }
  for (const auto& result : results) EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * 4), 0);
}

}  // namespace
}  // namespace tandem
