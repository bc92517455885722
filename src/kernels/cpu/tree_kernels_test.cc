#include "kernels/tree_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/sums.h"

namespace tandem {
namespace {

std::vector<float> tree_numbers(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  fill_normal(out.data(), n, RandomKey{5, 1, 2, 3});
  return out;
}

TEST(TreeSum, IsTheSumAlongTheTreeAndMinusZeroBecomesZero) {
  constexpr int64_t kN = 1000, kStride = 1003;
  const std::vector<int> merges{0, 1, 0, 2, 1};  // ((0+1)+(2+3))+4
  std::vector<float> leaves = tree_numbers(5 * kStride);
  for (int shard = 0; shard < 5; ++shard) leaves[static_cast<size_t>(shard * kStride + 7)] = -0.0f;
  std::vector<const float*> inputs;
  for (int shard = 0; shard < 5; ++shard) inputs.push_back(leaves.data() + shard * kStride);
  std::vector<float> expected(kN), found(kN, 9), one(kN);
  add_along_tree(expected.data(), inputs, merges, kN);
  const TreeKernels& kernels = TreeKernels::cpu();
  kernels.tree_sum(leaves.data(), kStride, 5, merges.data(), found.data(), kN, false, nullptr);
  EXPECT_FALSE(std::signbit(found[7]));
  EXPECT_EQ(found, expected);
  const int none = 0;
  kernels.tree_sum(leaves.data(), kStride, 1, &none, one.data(), kN, false, nullptr);
  EXPECT_FALSE(std::signbit(one[7]));
  kernels.tree_sum(leaves.data(), kStride, 5, merges.data(), one.data(), kN, true, nullptr);
  for (int64_t i = 0; i < kN; ++i)
    EXPECT_EQ(one[static_cast<size_t>(i)], leaves[static_cast<size_t>(i)] + expected[static_cast<size_t>(i)]);
}

TEST(TreeSum, RefusesATreeThatDoesNotEndWithOneSum) {
  std::vector<float> x(4);
  for (const std::vector<int>& merges : {std::vector<int>{0, 0}, {1, 0}, {0, 2}})
    EXPECT_THROW(TreeKernels::cpu().tree_sum(x.data(), 2, 2, merges.data(), x.data(), 2, false, nullptr),
                 std::logic_error);
}

TEST(ShardSums, AddEachShardsRowsApartInTheOrderOfTheLanes) {
  constexpr int64_t kRows = 2500;
  const std::vector<float> x = tree_numbers(3 * kRows), weight = tree_numbers(7 * kRows);
  for (const float* w : {static_cast<const float*>(nullptr), weight.data()}) {
    std::vector<float> all(3), alone(1);
    TreeKernels::cpu().shard_sums(x.data(), w, 3, kRows, all.data(), nullptr);
    for (int shard = 0; shard < 3; ++shard) {
      const float* const part = x.data() + shard * kRows;
      const float* const part_weight = w ? w + shard * kRows : nullptr;
      TreeKernels::cpu().shard_sums(part, part_weight, 1, kRows, alone.data(), nullptr);
      EXPECT_EQ(all[static_cast<size_t>(shard)], alone[0]);
      std::vector<float> lanes(kSumLanes);
      double exact = 0;
      for (int64_t row = 0; row < kRows; ++row) {
        const float product = part_weight ? part[row] * part_weight[row] : part[row];
        lanes[static_cast<size_t>(row % kSumLanes)] += product;
        exact += product;
      }
      for (size_t half = kSumLanes / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      EXPECT_EQ(alone[0], lanes[0]);
      EXPECT_NEAR(alone[0], exact, 1e-3);
    }
  }
}

}  // namespace
}  // namespace tandem
