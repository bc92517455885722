#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/linear_kernels.h"

namespace tandem {
namespace {

constexpr GeluForm kBothForms[] = {GeluForm::kTanh, GeluForm::kErf};
constexpr FloatType kAllTypes[] = {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf};

// Numbers of a type in memory.
struct TypedRows {
  TypedRows(FloatType of, int64_t n, uint32_t site) : type(of), bytes(static_cast<size_t>(n * bytes_of(of))) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, RandomKey{3, 1, 2, site}, 0, 0, 2);
    for (int64_t i = 0; i < n; ++i) store_float(bytes.data(), type, i, values[static_cast<size_t>(i)]);
  }
  float at(int64_t i) const { return load_float(bytes.data(), type, i); }
  FloatType type;
  std::vector<char> bytes;
};

double exact_gelu(GeluForm form, double x) {
  if (form == GeluForm::kErf) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double exact_slope(GeluForm form, double x) {
  constexpr double kStep = 1e-6;
  return (exact_gelu(form, x + kStep) - exact_gelu(form, x - kStep)) / (2 * kStep);
}

TEST(Gelu, IsExactToTheLastBitsOfFloatInBothForms) {
  std::vector<float> x;
  for (float at = -12; at <= 12; at += 0.001f) x.push_back(at);
  std::vector<float> y(x.size()), slope(x.size()), ones(x.size(), 1.0f);
  const auto n = static_cast<int64_t>(x.size());
  for (const GeluForm form : kBothForms) {
    LinearKernels::cpu().gelu(x.data(), y.data(), n, FloatType::kFloat, form, nullptr);
    LinearKernels::cpu().gelu_gradient(ones.data(), x.data(), slope.data(), 1, 1, n, FloatType::kFloat, form, nullptr,
                                       nullptr, nullptr);
    for (size_t i = 0; i < x.size(); ++i) {
      const double bound = 4e-7 * std::max(1.0, std::fabs(static_cast<double>(x[i])));
      ASSERT_NEAR(y[i], exact_gelu(form, x[i]), bound) << x[i];
      ASSERT_NEAR(slope[i], exact_slope(form, x[i]), bound + 1e-9) << x[i];
    }
  }
}

TEST(Gelu, OfWhatIsNoNumberOrHugeIsWhatOneExpects) {
  const std::vector<float> x{INFINITY, 1e30f, -1e30f, -INFINITY, NAN, 0.0f};
  std::vector<float> y(x.size()), slope(x.size()), ones(x.size(), 1.0f);
  for (const GeluForm form : kBothForms) {
    LinearKernels::cpu().gelu(x.data(), y.data(), 6, FloatType::kFloat, form, nullptr);
    LinearKernels::cpu().gelu_gradient(ones.data(), x.data(), slope.data(), 1, 6, 1, FloatType::kFloat, form, nullptr,
                                       nullptr, nullptr);
    EXPECT_EQ(y[0], INFINITY);
    EXPECT_EQ(y[1], 1e30f);
    EXPECT_NEAR(y[2], 0, 1e-15);
    EXPECT_NEAR(y[3], 0, 1e-15);
    EXPECT_TRUE(std::isnan(y[4]) && std::isnan(slope[4]));
    EXPECT_EQ(y[5], 0);
    EXPECT_EQ(slope[0], 1);
    EXPECT_EQ(slope[1], 1);
    EXPECT_NEAR(slope[2], 0, 1e-15);
    EXPECT_NEAR(slope[5], 0.5, 1e-7);
  }
}

TEST(ColumnSums, OfAShardAreTheSameAloneAndAmongOthersInTheOrderPromised) {
  constexpr int64_t kColumns = 37;
  for (const FloatType type : kAllTypes)
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{200}, int64_t{17'000}}) {
      const TypedRows dy(type, 3 * rows * kColumns, 5);
      std::vector<float> sums(3 * kColumns), alone(kColumns);
      LinearKernels::cpu().column_sums(dy.bytes.data(), 3, rows, kColumns, type, sums.data(), nullptr, nullptr);
      for (int shard = 0; shard < 3; ++shard) {
        const char* const first = dy.bytes.data() + shard * rows * kColumns * bytes_of(type);
        LinearKernels::cpu().column_sums(first, 1, rows, kColumns, type, alone.data(), nullptr, nullptr);
        for (int64_t column = 0; column < kColumns; ++column) {
          float total = 0;
          const int64_t block = rows > 16'384 ? 512 : 64;
          for (int64_t begin = 0; begin < rows; begin += block) {
            float lanes[8] = {};
            for (int64_t row = begin; row < std::min(rows, begin + block); ++row)
              lanes[(row - begin) % 8] += dy.at((shard * rows + row) * kColumns + column);
            for (int lane = 1; lane < 8; ++lane) lanes[0] += lanes[lane];
            total = begin == 0 ? lanes[0] : total + lanes[0];
          }
          ASSERT_EQ(sums[static_cast<size_t>(shard * kColumns + column)], total) << rows << " rows";
          ASSERT_EQ(alone[static_cast<size_t>(column)], total) << rows << " rows";
        }
      }
    }
}

TEST(GeluGradient, SumsTheColumnsOfWhatItWrites) {
  constexpr int64_t kRows = 150, kColumns = 40;
  for (const FloatType type : kAllTypes)
    for (const GeluForm form : kBothForms) {
      const TypedRows dy(type, 2 * kRows * kColumns, 6), z(type, 2 * kRows * kColumns, 7);
      TypedRows dz(type, 2 * kRows * kColumns, 8);
      std::vector<float> sums(2 * kColumns), expected(2 * kColumns);
      LinearKernels::cpu().gelu_gradient(dy.bytes.data(), z.bytes.data(), dz.bytes.data(), 2, kRows, kColumns, type,
                                         form, sums.data(), nullptr, nullptr);
      LinearKernels::cpu().column_sums(dz.bytes.data(), 2, kRows, kColumns, type, expected.data(), nullptr, nullptr);
      EXPECT_EQ(sums, expected);
      const double rounding = type == FloatType::kFloat ? 1e-6 : type == FloatType::kHalf ? 1e-3 : 8e-3;
      for (int64_t i = 0; i < 2 * kRows * kColumns; ++i)
        ASSERT_NEAR(dz.at(i), dy.at(i) * exact_slope(form, z.at(i)), rounding * (1 + std::fabs(dy.at(i))));
    }
}

}  // namespace
}  // namespace tandem
