// The first block of a video model, emulated on the CPU, beside its CPU twin.
#include "kernels/gpu/first_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem::cuda {
namespace {

std::vector<float> block_numbers(int64_t n, uint32_t site, FloatType type = FloatType::kFloat) {
  std::vector<float> values(static_cast<size_t>(n)), stored(values.size());
  fill_normal(values.data(), n, RandomKey{.seed = 12, .site = site}, 0, 0.4f, 0.5f);
  for (int64_t i = 0; i < n; ++i) store_float(stored.data(), type, i, values[static_cast<size_t>(i)]);
  return stored;
}

template <typename T>
bool equal_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct BlockResults {
  std::vector<double> sums, gradients;
  std::vector<float> mean, inv_std, means, vars, y, weights, scales, shifts;
  std::vector<uint32_t> codes;
};

BlockResults run_block(const FirstBlockKernels& kernels, const FirstBlockShape& s) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  const int64_t clips = s.shards * s.clips, table = s.shards * s.channels, outputs = clips * s.clip_out();
  const std::vector<float> x = block_numbers(s.shards * s.places(), 1, s.type);
  const std::vector<float> dy = block_numbers(outputs * s.channels, 2, s.type);
  const std::vector<float> weight = block_numbers(s.channels * kTaps, 3), scale = block_numbers(s.channels, 4),
                           shift = block_numbers(s.channels, 5);
  std::vector<double> scratch(size(first_block_scratch(s)));
  BlockResults r{std::vector<double>(size(int64_t{s.shards} * kTapSums)),
                 std::vector<double>(size(table * kGradientSums)),
                 std::vector<float>(size(table)),
                 std::vector<float>(size(table)),
                 std::vector<float>(size(table)),
                 std::vector<float>(size(table)),
                 std::vector<float>(size(outputs * s.channels)),
                 std::vector<float>(size(table * kTaps)),
                 std::vector<float>(size(table)),
                 std::vector<float>(size(table)),
                 std::vector<uint32_t>(size(outputs * s.code_words()))};
  kernels.tap_sums(s, x.data(), r.sums.data(), scratch.data(), nullptr);
  kernels.statistics(s, r.sums.data(), weight.data(), 1e-5f, 0.5f, r.mean.data(), r.inv_std.data(), r.means.data(),
                     r.vars.data(), nullptr);
  const FirstBlockKernels::Norm norm{weight.data(), r.mean.data(), r.inv_std.data(), scale.data(), shift.data()};
  kernels.forward(s, x.data(), norm, r.y.data(), r.codes.data(), nullptr);
  kernels.gradient_sums(s, x.data(), dy.data(), r.codes.data(), r.gradients.data(), scratch.data(), nullptr);
  kernels.leaves(s, r.sums.data(), r.gradients.data(), norm, r.weights.data(), r.scales.data(), r.shifts.data(),
                 nullptr);
  return r;
}

TEST(GpuFirstBlock, IsThatOfTheCpuToTheBit) {
  const FirstBlockKernels emulated{launch_tap_sums, launch_tap_statistics, launch_first_block, launch_first_gradients,
                                   launch_first_leaves};
  const std::vector<FirstBlockShape> shapes{{2, 1, 32, 5, 17, 36, FloatType::kBFloat16},
                                            {1, 2, 12, 2, 6, 134, FloatType::kFloat},  // two tiles, odd channels
                                            {1, 1, 40, 3, 2, 3, FloatType::kHalf}};
  for (const FirstBlockShape& s : shapes) {
    const BlockResults ours = run_block(emulated, s), expected = run_block(FirstBlockKernels::cpu(), s);
    EXPECT_TRUE(equal_bytes(ours.sums, expected.sums)) << s.width;
    EXPECT_TRUE(equal_bytes(ours.mean, expected.mean) && equal_bytes(ours.inv_std, expected.inv_std)) << s.width;
    EXPECT_TRUE(equal_bytes(ours.means, expected.means) && equal_bytes(ours.vars, expected.vars)) << s.width;
    EXPECT_TRUE(equal_bytes(ours.y, expected.y)) << s.width;
    EXPECT_EQ(ours.codes, expected.codes) << s.width;
    EXPECT_TRUE(equal_bytes(ours.gradients, expected.gradients)) << s.width;
    EXPECT_TRUE(equal_bytes(ours.weights, expected.weights)) << s.width;
    EXPECT_TRUE(equal_bytes(ours.scales, expected.scales) && equal_bytes(ours.shifts, expected.shifts)) << s.width;
  }
}

}  // namespace
}  // namespace tandem::cuda
