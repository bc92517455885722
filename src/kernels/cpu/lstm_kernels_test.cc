#include "kernels/lstm_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/lstm_math.h"

namespace tandem {
namespace {

TEST(LstmMath, LogisticAndTanhAreExactWithin3e7AndStayInTheirRanges) {
  double worst_logistic = 0, worst_tanh = 0;
  for (float x = -100; x <= 100; x += x > -20 && x < 20 ? 0.0003f : 0.1f) {
    const float s = lstm_logistic(x), t = lstm_tanh(x);
    worst_logistic = std::max(worst_logistic, std::fabs(s - 1 / (1 + std::exp(-double{x}))));
    worst_tanh = std::max(worst_tanh, std::fabs(t - std::tanh(double{x})));
    ASSERT_TRUE(s >= 0 && s <= 1 && t >= -1 && t <= 1) << x;
  }
  EXPECT_LT(worst_logistic, 1.5e-7);
  EXPECT_LT(worst_tanh, 3e-7);
  for (const float x : {1e-30f, 1e-10f, 1e-4f, 0.01f}) {
    EXPECT_NEAR(lstm_tanh(x) / x, std::tanh(double{x}) / x, 5e-7) << "small ones keep their digits";
    EXPECT_EQ(lstm_tanh(-x), -lstm_tanh(x));
  }
  EXPECT_EQ(lstm_tanh(0.0f), 0.0f);
}

TEST(LstmMath, OfWhatIsHugeOrNoNumberIsWhatOneExpects) {
  for (const float huge : {1e30f, INFINITY}) {
    EXPECT_EQ(lstm_logistic(huge), 1);
    EXPECT_NEAR(lstm_logistic(-huge), 0, 1e-20);
    EXPECT_NEAR(lstm_tanh(huge), 1, 3e-7);
    EXPECT_NEAR(lstm_tanh(-huge), -1, 3e-7);
  }
  for (const uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7FC00001u, 0x7FFFFFFFu, 0x7F800001u}) {
    EXPECT_TRUE(std::isnan(lstm_logistic(float_of_bits(bits)))) << bits;
    EXPECT_TRUE(std::isnan(lstm_tanh(float_of_bits(bits)))) << bits;
  }
}

std::vector<float> lstm_numbers(int64_t n, uint32_t site) {
  std::vector<float> values(static_cast<size_t>(n));
  fill_normal(values.data(), n, RandomKey{3, 1, 2, site}, 0, 0, 1.5f);
  return values;
}

// Two steps of three rows whose arrays lie in longer sequences, against the formulas in double.
TEST(LstmKernels, AreTheFormulasForwardAndBackwardInRowsWithStrides) {
  constexpr int64_t kRows = 3, kHidden = 21, kStride = 5 * kHidden, kGateStride = 5 * 4 * kHidden;
  std::vector<float> gates = lstm_numbers(kRows * kGateStride, 1), out(kRows * kStride), copy(kRows * kHidden);
  const std::vector<float> before_activation = gates, recurrent = lstm_numbers(kRows * 4 * kHidden, 2);
  std::vector<float> cells = lstm_numbers(kRows * kStride, 3);
  const std::vector<float> cells_before = cells;
  LstmKernels::cpu().forward({.rows = kRows,
                              .hidden = kHidden,
                              .gates = gates.data(),
                              .gates_stride = kGateStride,
                              .recurrent = recurrent.data(),
                              .cell_before = cells.data(),
                              .cell_before_stride = kStride,
                              .cell = cells.data() + kHidden,
                              .cell_stride = kStride,
                              .out = out.data() + kHidden,
                              .out_stride = kStride,
                              .out_copy = copy.data()},
                             nullptr);
  const std::vector<float> out_grad = lstm_numbers(kRows * kStride, 4), next = lstm_numbers(kRows * kHidden, 5);
  std::vector<float> cell_grad = lstm_numbers(kRows * kHidden, 6), grads(kRows * kGateStride),
                     grads_copy(kRows * 4 * kHidden);
  const std::vector<float> cell_grad_in = cell_grad;
  LstmKernels::cpu().backward({.rows = kRows,
                               .hidden = kHidden,
                               .gates = gates.data(),
                               .gates_stride = kGateStride,
                               .cell = cells.data() + kHidden,
                               .cell_before = cells.data(),
                               .cell_stride = kStride,
                               .out_grad = out_grad.data(),
                               .out_grad_stride = kStride,
                               .hidden_grad = next.data(),
                               .cell_grad = cell_grad.data(),
                               .gates_grad = grads.data(),
                               .gates_grad_stride = kGateStride,
                               .gates_grad_copy = grads_copy.data()},
                              nullptr);
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t u = 0; u < kHidden; ++u) {
      double z[4], before = cells_before[row * kStride + u];
      for (int64_t k = 0; k < 4; ++k)
        z[k] = double{before_activation[row * kGateStride + k * kHidden + u]} + recurrent[(row * 4 + k) * kHidden + u];
      const double i = logistic(z[0]), f = logistic(z[1]), g = std::tanh(z[2]), o = logistic(z[3]);
      const double c = f * before + i * g, t = std::tanh(c);
      ASSERT_NEAR(cells[row * kStride + kHidden + u], c, 3e-6);
      ASSERT_NEAR(out[row * kStride + kHidden + u], o * t, 2e-6);
      ASSERT_EQ(copy[row * kHidden + u], out[row * kStride + kHidden + u]);
      const double dh = double{out_grad[row * kStride + u]} + next[row * kHidden + u];
      const double dc = cell_grad_in[row * kHidden + u] + dh * o * (1 - t * t);
      const double expected[4] = {dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g),
                                  dh * t * o * (1 - o)};
      for (int64_t k = 0; k < 4; ++k) {
        ASSERT_NEAR(grads[row * kGateStride + k * kHidden + u], expected[k], 1e-5) << k;
        ASSERT_EQ(grads_copy[(row * 4 + k) * kHidden + u], grads[row * kGateStride + k * kHidden + u]);
      }
      ASSERT_NEAR(cell_grad[row * kHidden + u], dc * f, 1e-5);
      ASSERT_EQ(cells[row * kStride + 2 * kHidden + u], cells_before[row * kStride + 2 * kHidden + u]) << "not its own";
    }
}

}  // namespace
}  // namespace tandem
