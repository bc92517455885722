#include "kernels/cpu/norm_relu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tandem {
namespace {

using Floats = std::vector<float>;

Floats row_numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Floats x(n);
  for (float& v : x) v = std::normal_distribution<float>(0.3f, 1.5f)(random);
  return x;
}

struct Layer {
  Layer(int64_t rows, int64_t width, bool masked)
      : rows(rows),
        width(width),
        x(row_numbers(rows * width, 1)),
        weight(row_numbers(width, 2)),
        bias(row_numbers(width, 3)) {
    if (masked)
      for (float v : row_numbers(rows * width, 4)) mask.push_back(v > 0 ? 1.25f : 0.0f);
  }
  const float* mask_or_null() const { return mask.empty() ? nullptr : mask.data(); }
  // In double, as the definition says.
  std::vector<double> formula(const std::vector<double>& in, const std::vector<double>& w,
                              const std::vector<double>& b) const {
    std::vector<double> y(in.size());
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < width; ++i) mean += in[r * width + i] / static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i)
        variance += std::pow(in[r * width + i] - mean, 2) / static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i) {
        const int64_t index = r * width + i;
        y[index] = std::max(0.0, (in[index] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i]) *
                   (mask.empty() ? 1.0 : mask[index]);
      }
    }
    return y;
  }
  int64_t rows, width;
  Floats x, weight, bias, mask;
};

TEST(NormRelu, ForwardAndGradientAreThoseOfTheFormulaInEveryVariant) {
  constexpr int64_t kRows = 6;  // four interleaved, then two
  for (bool masked : {false, true})
    for (int64_t width : {5, 16, 37, 64}) {
      const Layer layer(kRows, width, masked);
      const std::vector<double> in(layer.x.begin(), layer.x.end()), w(layer.weight.begin(), layer.weight.end()),
          b(layer.bias.begin(), layer.bias.end());
      const std::vector<double> want = layer.formula(in, w, b);
      const Floats y_grad = row_numbers(kRows * width, 5);
      Floats first_y, first_x_grad;
      for (CpuVariant variant : runnable_cpu_variants()) {
        Floats y(kRows * width), normed(kRows * width), inv_std(kRows), x_grad(kRows * width), weight_grad(width, 0),
            bias_grad(width, 0);
        norm_relu(layer.x.data(), layer.weight.data(), layer.bias.data(), layer.mask_or_null(), y.data(), normed.data(),
                  inv_std.data(), kRows, width, 1e-5f, variant);
        norm_relu_backward(y_grad.data(), y.data(), normed.data(), inv_std.data(), layer.weight.data(),
                           masked ? 1.25f : 1.0f, x_grad.data(), weight_grad.data(), bias_grad.data(), kRows, width,
                           variant);
        for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 1e-4);
        if (first_y.empty()) first_y = y, first_x_grad = x_grad;
        for (int64_t r = 0; r < kRows; ++r) {  // a row has the same bits by itself
          Floats alone(width);
          norm_relu(layer.x.data() + r * width, layer.weight.data(), layer.bias.data(),
                    masked ? layer.mask.data() + r * width : nullptr, alone.data(), nullptr, nullptr, 1, width, 1e-5f,
                    variant);
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * width));
        }
        EXPECT_EQ(y, first_y);
        EXPECT_EQ(x_grad, first_x_grad);
        // By differences of the formula.
        const auto worth = [&](const std::vector<double>& out) {
          double sum = 0;
          for (size_t i = 0; i < out.size(); ++i) sum += out[i] * y_grad[i];
          return sum;
        };
        constexpr double kStep = 1e-6;
        for (int64_t index : {int64_t{0}, width + 1, kRows * width - 1}) {
          std::vector<double> up = in, down = in;
          up[index] += kStep;
          down[index] -= kStep;
          EXPECT_NEAR(x_grad[index], (worth(layer.formula(up, w, b)) - worth(layer.formula(down, w, b))) / (2 * kStep),
                      2e-3);
        }
        for (int64_t index : {int64_t{0}, width - 1}) {
          std::vector<double> up = w, bias_up = b;
          up[index] += kStep;
          bias_up[index] += kStep;
          EXPECT_NEAR(weight_grad[index], (worth(layer.formula(in, up, b)) - worth(want)) / kStep, 2e-3);
          EXPECT_NEAR(bias_grad[index], (worth(layer.formula(in, w, bias_up)) - worth(want)) / kStep, 2e-3);
        }
      }
    }
}

TEST(NormRelu, ReluForwardAndBackward) {
  const Floats x = row_numbers(37, 7), y_grad = row_numbers(37, 8);
  for (CpuVariant variant : runnable_cpu_variants()) {
    Floats y = x, grad = y_grad;
    relu(y.data(), 37, variant);
    relu_backward(grad.data(), y.data(), 37, variant);
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(y[i], std::max(0.0f, x[i]));
      EXPECT_EQ(grad[i], x[i] > 0 ? y_grad[i] : 0.0f);
    }
  }
}

TEST(NormRelu, AddRowsAddsInOrder) {
  const Floats x = row_numbers(7 * 19, 6);
  for (CpuVariant variant : runnable_cpu_variants()) {
    Floats sum(19, 0.5f), want(19, 0.5f);
    for (int64_t r = 0; r < 7; ++r)
      for (int64_t i = 0; i < 19; ++i) want[i] += x[r * 19 + i];
    add_rows(sum.data(), x.data(), 7, 19, variant);
    EXPECT_EQ(sum, want);
  }
}

}  // namespace
}  // namespace tandem
