// Layer norm, dropout bits and column sums, emulated on the CPU, at widths no net of ours has.
#include "kernels/gpu/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/gpu/column_sums.h"
#include "kernels/gpu/tree_sum.h"

namespace tandem::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int kRows = 3;

std::vector<float> normal_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

// A net of one norm: scale, then shift.
struct NormRun {
  int width;
  double dropout;
  std::vector<float> preact, out, inv_std, net, norm_out_grad, preact_grad, gradient;
  RandomKey key{.seed = 9, .step = 2, .shard = 1, .site = 4};

  NormRun(int of_width, double rate) : width(of_width), dropout(rate) {
    preact = normal_floats(kRows * width, 1);
    net = normal_floats(2 * width, 2);
    gradient = normal_floats(kRows * width, 3);
    out.assign(kRows * width, -1);
    inv_std.assign(kRows, -1);
    norm_out_grad = gradient;
    preact_grad.assign(kRows * width, -1);
  }
  LayerNorm forward() { return {preact.data(), out.data(), inv_std.data(), 0, width, 1, kRows, width, true, key.site}; }
  LayerNormBackward backward() {
    return {preact.data(), out.data(), inv_std.data(), norm_out_grad.data(), preact_grad.data(), 0, width,
            kRows,         1,          dropout};
  }
};

template <int kFloat4s>
void forward_kernel(NormRun& run) {
  const int row = threadIdx.x / 32;
  const LayerNorm layer = run.forward();
  const MaskShape mask = dropout_shape(run.dropout);
  const uint32_t bits = draw_dropout_bits(run.key, row, run.width, mask);
  float4 x[kFloat4s], scale[kFloat4s], shift[kFloat4s];
  load_row(layer.preact + row * run.width, run.width, x);
  load_row(run.net.data(), run.width, scale);
  load_row(run.net.data() + run.width, run.width, shift);
  const Moments moments = moments_of(x, run.width, kEpsilon);
  layer_norm_row(run.dropout, layer, bits, 0, row, true, x, moments.mean, moments.inv_std, scale, shift,
                 [](int, float4) {});
}
template <int kFloat4s>
void backward_kernel(NormRun& run) {
  const int row = threadIdx.x / 32;
  float4 out_grad[kFloat4s];
  load_row(run.gradient.data() + row * run.width, run.width, out_grad);
  layer_norm_row_backward(run.backward(), run.net.data(), 0, row, out_grad, [](int, float4) {});
}

TEST(GpuLayerNorm, ForwardAndBackwardAreThoseOfTheFormulaAtAnyWidth) {
  for (const int width : {4, 100, 132, 516, 900, 1024})
    for (const double dropout : {0.0, 0.3}) {
      SCOPED_TRACE(testing::Message() << width << " " << dropout);
      NormRun run(width, dropout);
      const std::vector<float> preact = run.preact;
      with_float4s(width, [&](auto float4s) {
        TANDEM_LAUNCH("", forward_kernel<float4s.value>, dim3(1), dim3(32 * kRows), nullptr, run);
        TANDEM_LAUNCH("", backward_kernel<float4s.value>, dim3(1), dim3(32 * kRows), nullptr, run);
      });
      std::vector<float> mask(kRows * width, 1);
      if (dropout > 0) fill_dropout_mask(mask.data(), kRows * width, run.key, 0, dropout);
      for (int row = 0; row < kRows; ++row) {
        const auto index = [&](int column) { return row * width + column; };
        double mean = 0, variance = 0, mean_grad = 0, mean_dot = 0;
        for (int c = 0; c < width; ++c) mean += preact[index(c)] / double(width);
        for (int c = 0; c < width; ++c) variance += std::pow(preact[index(c)] - mean, 2) / width;
        const double inv_std = 1 / std::sqrt(variance + kEpsilon);
        std::vector<double> normed_grad(width), normed(width);
        for (int c = 0; c < width; ++c) {
          normed[c] = (preact[index(c)] - mean) * inv_std;
          const double y = std::max(0.0, normed[c] * run.net[c] + run.net[width + c]) * mask[index(c)];
          ASSERT_NEAR(run.out[index(c)], y, 1e-4) << c;
          ASSERT_NEAR(run.preact[index(c)], normed[c], 1e-4) << c;
          const double norm_out_grad = run.out[index(c)] > 0 ? run.gradient[index(c)] * mask[index(c)] : 0;
          ASSERT_NEAR(run.norm_out_grad[index(c)], norm_out_grad, 1e-5) << c;
          normed_grad[c] = norm_out_grad * run.net[c];
          mean_grad += normed_grad[c] / width;
          mean_dot += normed_grad[c] * normed[c] / width;
        }
        ASSERT_NEAR(run.inv_std[row], inv_std, 1e-4 * inv_std);
        for (int c = 0; c < width; ++c)
          ASSERT_NEAR(run.preact_grad[index(c)], inv_std * (normed_grad[c] - mean_grad - normed[c] * mean_dot),
                      1e-4 * inv_std)
              << c;
      }
    }
}

// To the bit: a fused MLP takes several rows of a warp at once.
TEST(GpuLayerNorm, MomentsOfSeveralRowsAreThoseOfEachRow) {
  constexpr int kWidth = 384, kCount = 5;
  const std::vector<float> rows = normal_floats(kCount * kWidth, 4);
  std::vector<Moments> together(kCount), alone(kCount);
  const auto kernel = [&] {
    const int lane = threadIdx.x % 32;
    const Moments own = moments_of_rows<kCount>(kWidth, kEpsilon, [&](int i) { return rows.data() + i * kWidth; });
    if (lane < kCount) together[lane] = own;
    for (int i = 0; i < kCount; ++i) {
      float4 x[4];
      load_row(rows.data() + i * kWidth, kWidth, x);
      const Moments one = moments_of(x, kWidth, kEpsilon);
      if (lane == 0) alone[i] = one;
    }
  };
  TANDEM_LAUNCH("", kernel, dim3(1), dim3(32), nullptr);
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(together[i].mean, alone[i].mean);
    EXPECT_EQ(together[i].inv_std, alone[i].inv_std);
  }
}

TEST(GpuLayerNorm, DropoutBitsAreTheMaskOfTheCpu) {
  for (const int width : {8, 260, 1024}) {
    const RandomKey key{.seed = 5, .step = 7};
    std::vector<float> mask(kRows * width);
    fill_dropout_mask(mask.data(), kRows * width, key, 0, 0.4);
    std::vector<uint32_t> bits(kRows * 32);
    const auto kernel = [&] {
      bits[threadIdx.x] = draw_dropout_bits(key, static_cast<int>(threadIdx.x) / 32, width, dropout_shape(0.4));
    };
    TANDEM_LAUNCH("", kernel, dim3(1), dim3(32 * kRows), nullptr);
    for (int row = 0; row < kRows; ++row)
      for (int c = 0; c < width; ++c)
        ASSERT_EQ(bits[row * 32 + c / 4 % 32] >> (c / 128 * 4 + c % 4) & 1, mask[row * width + c] != 0 ? 1u : 0u) << c;
  }
}

TEST(ColumnSums, AddRowsInTheirOrderForAnyNumberOfRows) {
  for (const int rows : {1, 7, 8, 43, 75}) {
    const std::vector<float> a = normal_floats(2 * rows * 3, 5), b = normal_floats(2 * rows * 2, 6);
    const ColumnView plain{a.data() + 1, nullptr, 3, 0, rows * 3, 0},
        product{a.data(), b.data() + 1, 3, 2, rows * 3, rows * 2};
    for (const int shard : {0, 1}) {
      float sum = 0, dot = 0;
      for (int r = 0; r < rows; ++r) {
        sum = sum + a[(shard * rows + r) * 3 + 1];
        dot = std::fmaf(a[(shard * rows + r) * 3], b[(shard * rows + r) * 2 + 1], dot);
      }
      EXPECT_EQ(column_sum(plain, shard, rows), sum) << rows;
      EXPECT_EQ(column_sum(product, shard, rows), dot) << rows;
    }
  }
}

TEST(TreeStack, AddsLeftToRightAlongTheTree) {
  TreeStack<1, 4> stack;
  const float x[6] = {1e8f, 1, -1e8f, 3, 0.25f, 7};
  const int merges[6] = {0, 1, 0, 2, 0, 2};  // ((0 + 1) + (2 + 3)) + (4 + 5)
  for (int i = 0; i < 6; ++i) stack.push({x[i]}, merges[i]);
  EXPECT_EQ(stack.top()[0], ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]));
}

}  // namespace
}  // namespace tandem::cuda
