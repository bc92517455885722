// The arithmetic that CPU and GPU kernels share, beside libtorch's and the C library's.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "kernels/float_bits.h"
#include "kernels/softmax_math.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

// Numbers of all magnitudes that the types tell apart, their neighbours, and what is halfway between two.
at::Tensor all_magnitudes() {
  at::Tensor values = test_numbers({100'000}, 1);
  float* const x = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i % 300) - 150);
    if (i % 3 == 0) x[i] = half_to_float(static_cast<uint16_t>(i)) + (i % 2 ? 0.0f : half_to_float(1) / 2);
    if (i % 7 == 0) x[i] = float_of_bits(bits_of_float(x[i]) & 0xFFFF8000u);
  }
  x[0] = INFINITY, x[1] = -INFINITY, x[2] = 65519.996f, x[3] = 65520.0f, x[4] = -0.0f, x[5] = 3.4e38f;
  return values;
}

TEST(FloatBits, RoundAsLibtorchDoes) {
  const at::Tensor values = all_magnitudes();
  for (const auto& [type, mine] :
       {std::pair{at::kBFloat16, FloatType::kBFloat16}, std::pair{at::kHalf, FloatType::kHalf}}) {
    const at::Tensor rounded = values.to(type);
    at::Tensor ours = at::empty_like(rounded), back = at::empty_like(values);
    for (int64_t i = 0; i < values.numel(); ++i) {
      const float x = values.const_data_ptr<float>()[i];
      store_float(ours.data_ptr(), mine, i, x);
      back.data_ptr<float>()[i] = load_float(ours.const_data_ptr(), mine, i);
      const float again = round_to(mine, x);
      ASSERT_EQ(bits_of_float(again), bits_of_float(back.const_data_ptr<float>()[i])) << x;
    }
    EXPECT_TRUE(at::equal(ours, rounded) || ours.isnan().equal(rounded.isnan()));
    EXPECT_TRUE(same_bits(ours.nan_to_num(), rounded.nan_to_num()));
    EXPECT_TRUE(same_bits(back.nan_to_num(), rounded.to(at::kFloat).nan_to_num()));
  }
  EXPECT_TRUE(std::isnan(round_to(FloatType::kBFloat16, float_of_bits(0x7F800001u))));
  EXPECT_TRUE(std::isnan(round_to(FloatType::kHalf, float_of_bits(0xFF800001u))));
}

TEST(SoftmaxMath, ExpAndLogAreNearTheCLibrarys) {
  for (float x = 0; x > -30; x -= 0.00137f)
    ASSERT_NEAR(softmax_exp(x) / std::exp(static_cast<double>(x)), 1, 3e-7 - 6e-8 * static_cast<double>(x));
  EXPECT_EQ(softmax_exp(0), 1);
  EXPECT_EQ(softmax_exp(-90), 0);
  EXPECT_EQ(softmax_exp(-INFINITY), 0);
  EXPECT_TRUE(std::isnan(softmax_exp(NAN)));
  for (float x = 0.01f; x < 1e6f; x *= 1.0007f)
    ASSERT_NEAR(softmax_log(x), std::log(static_cast<double>(x)), 1e-7 + 1e-7 * std::abs(std::log(x)));
  EXPECT_EQ(softmax_log(1), 0);
  EXPECT_TRUE(std::isnan(softmax_log(NAN)));
  EXPECT_EQ(softmax_log(0), -INFINITY);
}

}  // namespace
}  // namespace tandem
