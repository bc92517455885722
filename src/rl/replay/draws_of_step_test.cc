// Prioritized replay is exact: frequencies, weights, and a split buffer that samples as a whole one.
#include "rl/replay/draws_of_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "rl/replay/priority.h"
#include "rl/replay/priority_tree.h"

namespace tandem {
namespace {

// A buffer of these priorities, cut into equal shards.
struct SplitPriorities {
  SplitPriorities(const std::vector<int64_t>& priorities, int shards)
      : each(static_cast<int64_t>(priorities.size()) / shards) {
    for (int s = 0; s < shards; ++s) {
      memory.emplace_back(PriorityTree::words(each));
      trees.emplace_back(memory.back(), each);
      for (int64_t i = 0; i < each; ++i) trees.back().set(i, priorities[s * each + i]);
      sums.push_back(trees.back().total());
    }
  }
  // What each shard finds for itself, as numbers of the whole buffer; every draw must be found once.
  std::vector<int64_t> draw(const RandomKey& key, int64_t count) const {
    std::vector<int64_t> items(count, -1);
    for (size_t s = 0; s < trees.size(); ++s) {
      const ShardDraws draws = draws_of_shard(sums, static_cast<int>(s), count);
      for (int64_t k = draws.first; k < draws.last; ++k) {
        const int64_t place = draws.place(key, k, count);
        if (place < 0) continue;
        EXPECT_EQ(items[k], -1) << "draw " << k << " has two owners";
        items[k] = static_cast<int64_t>(s) * each + trees[s].find(place);
      }
    }
    for (int64_t item : items) EXPECT_GE(item, 0) << "a draw without an owner";
    return items;
  }
  int64_t each;
  std::vector<std::vector<int64_t>> memory;
  std::vector<PriorityTree> trees;
  std::vector<int64_t> sums;
};

std::vector<int64_t> some_priorities(int64_t count, double alpha, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> priorities(count);
  for (int64_t& p : priorities)
    p = random() % 10 == 0 ? 0 : priority_of(std::exponential_distribution<float>(0.5f)(random), alpha);
  return priorities;
}

TEST(Draws, ComeInTheOrderOfTheBuffer) {
  for (const int64_t total : {int64_t{1}, int64_t{37}, int64_t{255}, int64_t{256}, int64_t{100003}, int64_t{1} << 50})
    for (uint64_t step = 0; step < 20; ++step) {
      int64_t last = 0;
      for (int64_t k = 0; k < 256; ++k) {
        const int64_t place = place_of_draw({.seed = 5, .step = step}, k, 256, total);
        ASSERT_GE(place, last) << k << " of " << total;
        ASSERT_LT(place, total);
        last = place;
      }
    }
  const SplitPriorities split(some_priorities(960, 0.6, 4), 8);
  const std::vector<int64_t> drawn = split.draw({.seed = 6}, 2048);
  EXPECT_TRUE(std::ranges::is_sorted(drawn));
}

TEST(Draws, ABufferThatIsSplitIsSampledAsOne) {
  for (uint64_t seed : {1, 2, 3}) {
    const std::vector<int64_t> priorities = some_priorities(960, 0.6, seed);
    const SplitPriorities whole(priorities, 1);
    for (uint64_t step = 0; step < 50; ++step) {
      const RandomKey key{seed, step, 0, 4};
      const std::vector<int64_t> want = whole.draw(key, 256);
      for (int shards : {2, 3, 4, 8, 24}) EXPECT_EQ(SplitPriorities(priorities, shards).draw(key, 256), want);
    }
  }
}

TEST(Draws, AShardWithoutMassOrWithAllOfItIsNoSpecialCase) {
  std::vector<int64_t> priorities(64, 0);
  priorities[17] = 5;  // fewer units than draws
  const SplitPriorities split(priorities, 8);
  for (int64_t item : split.draw({1, 1, 0, 4}, 256)) EXPECT_EQ(item, 17);
}

TEST(Draws, FrequenciesAreThePrioritiesByChiSquare) {
  constexpr int64_t kItems = 200, kBatch = 32, kSteps = 4000;
  const std::vector<int64_t> priorities = some_priorities(kItems, 0.6, 9);
  const double total = static_cast<double>(std::accumulate(priorities.begin(), priorities.end(), int64_t{0}));
  const SplitPriorities split(priorities, 4);
  std::vector<double> seen(kItems, 0);
  for (uint64_t step = 0; step < kSteps; ++step)
    for (int64_t item : split.draw({5, step, 0, 4}, kBatch)) seen[item] += 1;
  double chi = 0, free = -1;
  for (int64_t i = 0; i < kItems; ++i) {
    const double expected = static_cast<double>(priorities[i]) / total * kBatch * kSteps;
    if (priorities[i] == 0) {
      EXPECT_EQ(seen[i], 0);
      continue;
    }
    chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    free += 1;
  }
  // Strata draw more evenly than independent draws would: chi is at most about its number of degrees of freedom.
  EXPECT_LT(chi, free + 4 * std::sqrt(2 * free));
  EXPECT_GT(chi, 0.2 * free);  // and it is still random
}

TEST(Draws, ImportanceWeightsAreThoseOfTheDefinition) {
  const std::vector<int64_t> priorities = some_priorities(480, 0.6, 4);
  const double total = static_cast<double>(std::accumulate(priorities.begin(), priorities.end(), int64_t{0}));
  double items = 0;
  for (int64_t p : priorities) items += p > 0 ? 1 : 0;
  for (double beta : {0.0, 0.4, 1.0}) {
    const std::vector<int64_t> drawn = SplitPriorities(priorities, 8).draw({7, 3, 0, 4}, 64);
    int64_t least = INT64_MAX;
    double largest = 0;  // (N P)^-beta, brute force
    for (int64_t item : drawn) {
      least = std::min(least, priorities[item]);
      largest = std::max(largest, std::pow(items * static_cast<double>(priorities[item]) / total, -beta));
    }
    for (int64_t item : drawn)
      EXPECT_NEAR(importance_weight(priorities[item], least, beta),
                  std::pow(items * static_cast<double>(priorities[item]) / total, -beta) / largest, 1e-6);
  }
}

}  // namespace
}  // namespace tandem
