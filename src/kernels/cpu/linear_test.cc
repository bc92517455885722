#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/philox.h"

namespace tandem {
namespace {

std::vector<float> uniform_numbers(int64_t n, uint32_t site) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[i] = random_uniform(RandomKey{7, 0, 0, site}, i) * 2 - 1;
  return out;
}

TEST(Linear, IsTheSumInOrderForEveryVariantAndNumberOfRows) {
  for (const auto& [rows, in, out] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {5, 7, 33}, {9, 128, 64}, {4, 3, 10}}) {
    const auto x = uniform_numbers(rows * in, 1), w = uniform_numbers(in * out, 2), bias = uniform_numbers(out, 3);
    for (const CpuVariant variant : runnable_cpu_variants()) {
      std::vector<float> y(static_cast<size_t>(rows * out));
      linear(x.data(), w.data(), bias.data(), y.data(), rows, in, out, variant);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> alone(static_cast<size_t>(out));
        linear(x.data() + r * in, w.data(), bias.data(), alone.data(), 1, in, out, variant);
        for (int64_t o = 0; o < out; ++o) {
          float sum = bias[o];
          for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[i * out + o];
          ASSERT_EQ(y[r * out + o], sum);
          ASSERT_EQ(alone[o], sum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
