#include "engine/shard_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/errors.h"

namespace tandem {
namespace {

std::vector<int> sizes(const ShardPlan& plan) {
  std::vector<int> s;
  for (const ShardRange& range : plan.ranges()) s.push_back(range.size());
  return s;
}

TEST(ShardPlan, EqualWorkersGetEqualContiguousRanges) {
  const std::vector<double> speeds{1, 1, 1};
  const ShardPlan plan = ShardPlan::balance(24, speeds);
  EXPECT_EQ(plan.range(0), (ShardRange{0, 8}));
  EXPECT_EQ(plan.range(1), (ShardRange{8, 16}));
  EXPECT_EQ(plan.range(2), (ShardRange{16, 24}));
  EXPECT_DOUBLE_EQ(plan.efficiency(), 1);
}

TEST(ShardPlan, FasterWorkersTakeMoreAndEverybodyTakesOne) {
  EXPECT_EQ(sizes(ShardPlan::balance(28, std::vector<double>{1, 0.5, 0.25})), (std::vector<int>{16, 8, 4}));
  EXPECT_EQ(sizes(ShardPlan::balance(3, std::vector<double>{1, 0.01, 0.01})), (std::vector<int>{1, 1, 1}));
}

TEST(ShardPlan, TellsWhatWholeShardsCost) {
  EXPECT_NEAR(ShardPlan::balance(24, std::vector<double>(5, 1.0)).efficiency(), 0.96, 1e-9);
}

TEST(ShardPlan, MoreWorkersThanShardsIsTheUsersError) {
  EXPECT_THROW(ShardPlan::balance(2, std::vector<double>(3, 1.0)), ConfigError);
}

}  // namespace
}  // namespace tandem
