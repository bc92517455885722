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
        const int64_t at = r * width + i;
        y[at] =
            std::max(0.0, (in[at] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i]) * (mask.empty() ? 1.0 : mask[at]);
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
      const Floats dy = row_numbers(kRows * width, 5);
      Floats first_y, first_dx;
      for (CpuVariant variant : runnable_cpu_variants()) {
        Floats y(kRows * width), normed(kRows * width), inverse(kRows), dx(kRows * width), dw(width, 0), db(width, 0);
        norm_relu(layer.x.data(), layer.weight.data(), layer.bias.data(), layer.mask_or_null(), y.data(), normed.data(),
                  inverse.data(), kRows, width, 1e-5f, variant);
        norm_relu_backward(dy.data(), y.data(), normed.data(), inverse.data(), layer.weight.data(),
                           masked ? 1.25f : 1.0f, dx.data(), dw.data(), db.data(), kRows, width, variant);
        for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 1e-4);
        if (first_y.empty()) first_y = y, first_dx = dx;
        for (int64_t r = 0; r < kRows; ++r) {  // a row has the same bits by itself
          Floats alone(width);
          norm_relu(layer.x.data() + r * width, layer.weight.data(), layer.bias.data(),
                    masked ? layer.mask.data() + r * width : nullptr, alone.data(), nullptr, nullptr, 1, width, 1e-5f,
                    variant);
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * width));
        }
        EXPECT_EQ(y, first_y);
        EXPECT_EQ(dx, first_dx);
        // By differences of the formula.
        const auto worth = [&](const std::vector<double>& out) {
          double sum = 0;
          for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dy[i];
          return sum;
        };
        constexpr double kStep = 1e-6;
        for (int64_t at : {int64_t{0}, width + 1, kRows * width - 1}) {
          std::vector<double> up = in, down = in;
          up[at] += kStep;
          down[at] -= kStep;
          EXPECT_NEAR(dx[at], (worth(layer.formula(up, w, b)) - worth(layer.formula(down, w, b))) / (2 * kStep), 2e-3);
        }
        for (int64_t at : {int64_t{0}, width - 1}) {
          std::vector<double> up = w, bias_up = b;
          up[at] += kStep;
          bias_up[at] += kStep;
          EXPECT_NEAR(dw[at], (worth(layer.formula(in, up, b)) - worth(want)) / kStep, 2e-3);
          EXPECT_NEAR(db[at], (worth(layer.formula(in, w, bias_up)) - worth(want)) / kStep, 2e-3);
        }
      }
    }
}

TEST(NormRelu, ReluForwardAndBackward) {
  const Floats x = row_numbers(37, 7), dy = row_numbers(37, 8);
  for (CpuVariant variant : runnable_cpu_variants()) {
    Floats y = x, grad = dy;
    relu(y.data(), 37, variant);
    relu_backward(grad.data(), y.data(), 37, variant);
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(y[i], std::max(0.0f, x[i]));
      EXPECT_EQ(grad[i], x[i] > 0 ? dy[i] : 0.0f);
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
