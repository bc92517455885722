#include "fleet/planner.h"

#include <gtest/gtest.h>

#include <random>

#include "reduce/sum_tree.h"

namespace tandem {
namespace {

std::map<int, double> equal_workers(int count) {
  std::map<int, double> speeds;
  for (int rank = 0; rank < count; ++rank) speeds[rank] = 1;
  return speeds;
}

std::vector<int> sizes(const std::vector<ShardAssignment>& plan) {
  std::vector<int> sizes;
  for (const ShardAssignment& a : plan) sizes.push_back(a.range.size());
  return sizes;
}

// Every plan there is, by brute force.
double cheapest(int shards, const std::map<int, double>& speeds, const PlannerOptions& options) {
  double best = 1e300;
  std::vector<ShardAssignment> plan;
  const auto place = [&](auto&& self, std::map<int, double>::const_iterator next, int first) -> void {
    if (next == speeds.end()) {
      if (first == shards) best = std::min(best, cost_of(shards, plan, speeds, options).step_seconds);
      return;
    }
    for (int last = first + 1; last <= shards; ++last) {
      plan.push_back({next->first, {first, last}});
      self(self, std::next(next), last);
      plan.pop_back();
    }
  };
  place(place, speeds.begin(), 0);
  return best;
}

TEST(Planner, EqualWorkersGetEqualRanges) {
  for (int workers : {1, 2, 3, 4, 6, 8}) {
    const auto plan = make_plan(24, equal_workers(workers), {});
    EXPECT_EQ(sizes(plan), std::vector<int>(workers, 24 / workers));
    EXPECT_LE(cost_of(24, plan, equal_workers(workers), {}).most_partials, 2);
  }
}

TEST(Planner, RanksAscendAndCoverAllShards) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int shards = 1 + static_cast<int>(random() % 96), workers = 1 + static_cast<int>(random() % 20);
    std::map<int, double> speeds;
    while (static_cast<int>(speeds.size()) < workers) speeds[static_cast<int>(random() % 64)] = 1 + random() % 9;
    const auto plan = make_plan(shards, speeds, {.combine_seconds = 0.1 * (random() % 3)});
    ASSERT_EQ(static_cast<int>(plan.size()), std::min(shards, workers));
    int at = 0, rank = -1;
    for (const ShardAssignment& a : plan) {
      EXPECT_EQ(a.range.first, at);
      EXPECT_GT(a.range.last, at);
      EXPECT_GT(a.rank, rank);
      at = a.range.last, rank = a.rank;
    }
    EXPECT_EQ(at, shards);
  }
}

TEST(Planner, NoPlanIsFaster) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 100; ++trial) {
    const int shards = 4 + static_cast<int>(random() % 12);
    std::map<int, double> speeds;
    for (int rank = 0; rank < 1 + trial % 4; ++rank) speeds[rank] = 0.5 + random() % 8;
    const PlannerOptions options{.combine_seconds = 0.05 * (random() % 20)};
    const auto plan = make_plan(shards, speeds, options);
    EXPECT_NEAR(cost_of(shards, plan, speeds, options).step_seconds, cheapest(shards, speeds, options), 1e-9);
  }
}

TEST(Planner, FasterWorkersTakeMore) {
  EXPECT_EQ(sizes(make_plan(28, {{0, 1}, {1, 0.5}, {2, 0.25}}, {})), (std::vector<int>{16, 8, 4}));
}

TEST(Planner, AWorkerABitFasterDoesNotCutASubtreeWhenSumsAreDear) {
  const std::map<int, double> speeds{{0, 1.0}, {1, 0.9}};
  EXPECT_EQ(sizes(make_plan(24, speeds, {.combine_seconds = 0})), (std::vector<int>{13, 11}));
  EXPECT_EQ(sizes(make_plan(24, speeds, {.combine_seconds = 3})), (std::vector<int>{12, 12}));
}

TEST(Planner, AmongEquallyFastPlansTheOneWithFewPartialsIsTaken) {
  const auto plan = make_plan(24, equal_workers(5), {});
  EXPECT_EQ(cost_of(24, plan, equal_workers(5), {}).step_seconds, 5);
  int partials = 0;
  for (const ShardAssignment& a : plan)
    partials += static_cast<int>(SumTree(24).cover(a.range.first, a.range.last).size());
  EXPECT_LE(partials, 11);
}

TEST(Planner, AmongEqualPlansShardsStayWhereTheyAre) {
  // One shard each, and the last of three is free to go to either neighbour's side.
  const std::map<int, double> speeds{{0, 1}, {1, 1}};
  const std::vector<ShardAssignment> left{{0, {0, 2}}, {1, {2, 3}}}, right{{0, {0, 1}}, {1, {1, 3}}};
  const auto from_left = make_plan(3, speeds, {}, left), from_right = make_plan(3, speeds, {}, right);
  EXPECT_EQ(cost_of(3, from_left, speeds, {}).step_seconds, cost_of(3, from_right, speeds, {}).step_seconds);
  EXPECT_TRUE(from_left == left || from_right == right);
}

TEST(Planner, SlowestWorkersAreSparesWhenThereAreMoreThanShards) {
  const auto plan = make_plan(2, {{0, 1}, {1, 3}, {2, 2}}, {});
  EXPECT_EQ(plan, (std::vector<ShardAssignment>{{1, {0, 1}}, {2, {1, 2}}}));
  EXPECT_EQ(make_plan(1, equal_workers(2), {}).front().rank, 0);
}

TEST(Planner, ManyShardsOnManyWorkersIsQuick) {
  std::map<int, double> speeds;
  for (int rank = 0; rank < 64; ++rank) speeds[rank] = 1 + 0.01 * (rank % 7);
  EXPECT_EQ(make_plan(512, speeds, {.combine_seconds = 0.5}).size(), 64u);
}

TEST(Planner, AMoveMustGainEnoughAndPayBack) {
  const std::map<int, double> speeds{{0, 2}, {1, 1}};
  const std::vector<ShardAssignment> equal{{0, {0, 12}}, {1, {12, 24}}}, fair{{0, {0, 16}}, {1, {16, 24}}};
  EXPECT_TRUE(worth_moving(24, equal, fair, speeds, 12, 1, {}));
  EXPECT_FALSE(worth_moving(24, equal, fair, speeds, 12, 11, {}));  // a third of 30 s is 10 s
  EXPECT_FALSE(worth_moving(24, equal, fair, speeds, 400, 0, {}));  // 4 s of 400 are 1 %
  EXPECT_FALSE(worth_moving(24, fair, equal, speeds, 12, 0, {}));
  EXPECT_FALSE(worth_moving(24, fair, fair, speeds, 12, 0, {}));
}

TEST(Planner, TellsTheLossByWholeShards) {
  EXPECT_EQ(plan_text(24, make_plan(24, equal_workers(3), {}), equal_workers(3), {}), "24 shards on 3 workers: 8 8 8");
  const std::string text = plan_text(24, make_plan(24, equal_workers(5), {}), equal_workers(5), {});
  EXPECT_NE(text.find("(4.0 % lost to whole shards)"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem
