// Norm + ReLU + pool, emulated on the CPU, beside its CPU twin.
#include "kernels/gpu/norm_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/random_fill.h"

namespace tandem::cuda {
namespace {

std::vector<float> pool_numbers(int64_t n, uint32_t site, FloatType type = FloatType::kFloat) {
  std::vector<float> values(static_cast<size_t>(n)), stored(values.size());
  fill_normal(values.data(), n, RandomKey{.seed = 11, .site = site}, 0, 0.3f, 1);
  for (int64_t i = 0; i < n; ++i) store_float(stored.data(), type, i, values[static_cast<size_t>(i)]);
  return stored;
}

TEST(GpuNormPool, ForwardAndBackwardAreThoseOfTheCpuToTheBit) {
  const std::vector<NormPoolShape> shapes{
      {2, 2, 16, {3, 6, 8}, {1, 2, 2}, FloatType::kFloat},
      {1, 2, 19, {5, 7, 5}, {2, 2, 2}, FloatType::kBFloat16},  // neither boxes nor channels divide
      {3, 1, 8, {4, 18, 20}, {2, 2, 2}, FloatType::kHalf},
      {1, 1, 72, {1, 3, 8}, {1, 3, 2}, FloatType::kFloat}};
  for (const NormPoolShape& s : shapes) {
    const int64_t in = s.shards * s.clips * s.clip_in() * s.channels, places = s.shards * s.clips * s.clip_out();
    const int64_t table = s.shards * s.channels;
    const std::vector<float> x = pool_numbers(in, 1, s.type), dy = pool_numbers(places * s.channels, 2, s.type);
    const std::vector<float> mean = pool_numbers(table, 3), inv_std = pool_numbers(table, 4);
    const std::vector<float> weight = pool_numbers(s.channels, 5), bias = pool_numbers(s.channels, 6);
    const NormPoolKernels::Given given{x.data(), mean.data(), inv_std.data(), weight.data(), bias.data()};
    struct Results {
      std::vector<float> y, dx, weights, biases, scratch;
      std::vector<uint32_t> codes;
    };
    const auto run = [&](const auto& forward, const auto& sums, const auto& backward) {
      Results r{std::vector<float>(static_cast<size_t>(places * s.channels)),
                std::vector<float>(static_cast<size_t>(in)),
                std::vector<float>(static_cast<size_t>(table)),
                std::vector<float>(static_cast<size_t>(table)),
                std::vector<float>(static_cast<size_t>(batch_norm_scratch_floats(s.outputs()))),
                std::vector<uint32_t>(static_cast<size_t>(places * s.code_words()))};
      forward(s, given, r.y.data(), r.codes.data(), nullptr);
      sums(s, given, dy.data(), r.codes.data(), r.weights.data(), r.biases.data(), r.scratch.data(), nullptr);
      backward(s, given, dy.data(), r.codes.data(), r.weights.data(), r.biases.data(), r.dx.data(), nullptr);
      return r;
    };
    const Results ours = run(launch_norm_pool, launch_norm_pool_sums, launch_norm_unpool);
    const NormPoolKernels& cpu = NormPoolKernels::cpu();
    const Results expected = run(cpu.forward, cpu.backward_sums, cpu.backward);
    EXPECT_EQ(ours.codes, expected.codes);
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(ours.y, expected.y)) << s.channels;
    EXPECT_TRUE(same(ours.weights, expected.weights)) << s.channels;
    EXPECT_TRUE(same(ours.biases, expected.biases)) << s.channels;
    EXPECT_TRUE(same(ours.dx, expected.dx)) << s.channels;
  }
}

}  // namespace
}  // namespace tandem::cuda
