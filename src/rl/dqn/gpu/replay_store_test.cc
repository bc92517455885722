// The replay store's kernel, emulated on the CPU, beside the host's buffer.
#include "rl/dqn/gpu/replay_store.cu"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "rl/dqn/gpu/after_update.cu"  // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/fused_net.cu"     // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/layers.cu"        // NOLINT(bugprone-suspicious-include)
#include "rl/replay/replay.h"

namespace tandem::cuda {
namespace {

// Rows are drawn in their order, one several times; its last error counts, be it a number or not.
TEST(StoreOnAGpu, OfSeveralDrawsOfARowTheLastOneSaysItsPriority) {
  constexpr int kBatch = 3 * kStoreThreads / 2, kLeaves = 300;  // threads have a second one
  DqnShape shape{.batch = kBatch, .ring_rows = kLeaves, .alpha = 0.6};
  shape.levels = PriorityTree::places(kLeaves, shape.level_first);
  std::vector<int32_t> drawn(kBatch, -1);  // the first and last ones are another shard's
  std::vector<float> errors(kBatch);
  std::vector<int64_t> words(static_cast<size_t>(PriorityTree::words(kLeaves))), expected = words;
  PriorityTree tree(words, kLeaves), expected_tree(expected, kLeaves);
  for (int leaf = 0; leaf < kLeaves; ++leaf)
    for (PriorityTree* t : {&tree, &expected_tree}) t->set(leaf, 1000 + leaf);
  int again = 0;
  for (int k = 0; k < kBatch; ++k) {
    errors[k] = k % 7 == 0 ? -1.0f : k % 11 == 0 ? std::nanf("") : 0.01f * static_cast<float>(1 + k * 37 % 101);
    if (k >= 5 && k < kBatch - 5) drawn[k] = k * k % 5 == 0 ? k / 3 * 2 : k / 3 * 2 + k % 3 / 2;
    again += k > 0 && drawn[k] >= 0 && drawn[k] == drawn[k - 1];
  }
  ASSERT_TRUE(std::is_sorted(drawn.begin() + 5, drawn.end() - 5));
  ASSERT_GT(again, kBatch / 4);
  for (int k = 0; k < kBatch; ++k)
    if (drawn[k] >= 0 && (k + 1 == kBatch || drawn[k + 1] != drawn[k]) && errors[k] >= 0)
      expected_tree.set(drawn[k], priority_of(errors[k], shape.alpha));
  int64_t max_priority = 5, episodes = -1;
  float returns = -1;
  const GpuDqnAgent agent{.td_errors = errors.data(), .max_priority = &max_priority};
  const std::vector<int64_t> before = words;
  for (const bool backwards : {false, true}) {
    words = before;
    const DqnShard shard{.tree = words.data(), .drawn = drawn.data()};
    const DqnWork work{.agents = &agent, .shards = &shard, .shard_returns = &returns, .shard_episodes = &episodes};
    cuda_on_cpu::last_thread_first = backwards;
    TANDEM_LAUNCH("", store, dim3(1), dim3(kStoreThreads), nullptr, shape, DqnOffsets{}, work, ExtraBlocks{});
    cuda_on_cpu::last_thread_first = false;
    EXPECT_EQ(words, expected) << backwards;
  }
  EXPECT_EQ(episodes, 0);
}

// Rings, and what can be drawn of them, as Replay::add has it: any number of steps, more environments than threads.
TEST(StoreOnAGpu, PutsIntoTheRingsWhatReplayDoes) {
  constexpr int kEnvironments = kStoreThreads + 44;
  for (const int n_step : {1, 3, 4, 5, 32}) {
    SCOPED_TRACE(n_step);
    const int64_t rows = n_step + 2, leaves = kEnvironments * rows;
    const ReplayShape replay{kEnvironments, rows, 1, n_step, 0.9};
    DqnShape shape{.batch = 1,
                   .environments = kEnvironments,
                   .observation_size = 1,
                   .n_step = n_step,
                   .ring_rows = rows,
                   .alpha = 0.6};
    shape.levels = PriorityTree::places(leaves, shape.level_first);
    const auto all = static_cast<size_t>(leaves);
    std::vector<float> seen(all), returns(kEnvironments), rewards(kEnvironments), errors{-1.0f};
    std::vector<ReplayRow> ring(all), expected_ring(all);
    std::vector<int64_t> written(kEnvironments), expected_written = written;
    std::vector<int64_t> words(static_cast<size_t>(PriorityTree::words(leaves))), expected = words;
    std::vector<int32_t> actions(kEnvironments), ends(kEnvironments), drawn{-1};
    Replay cpu(replay, seen.data(), expected_ring.data(), expected_written.data(), expected);
    int64_t max_priority = 0, episodes = 0;
    float returned = 0;
    const GpuDqnAgent agent{.td_errors = errors.data(), .max_priority = &max_priority};
    const DqnShard shard{returns.data(), seen.data(), ring.data(), written.data(), words.data(), drawn.data()};
    const DqnWork work{.agents = &agent,
                       .shards = &shard,
                       .rewards = rewards.data(),
                       .actions = actions.data(),
                       .ends = ends.data(),
                       .shard_returns = &returned,
                       .shard_episodes = &episodes};
    for (uint64_t step = 0; step < static_cast<uint64_t>(3 * rows + 2); ++step) {
      max_priority = 1000 + static_cast<int64_t>(step);
      int64_t over = 0;
      for (int e = 0; e < kEnvironments; ++e) {
        const auto random =
            static_cast<uint32_t>(random_below({.seed = 8, .step = step}, static_cast<uint64_t>(e), 60));
        rewards[e] = static_cast<float>(random);
        actions[e] = static_cast<int32_t>(random % 10);
        const End end = random < 60 / static_cast<uint32_t>(rows) ? End::kTerminated : End::kNone;
        ends[e] = static_cast<int32_t>(end);
        over += end != End::kNone;
        const float observation = 0;
        cpu.add(e, &observation, actions[e], rewards[e], end, nullptr, max_priority);
      }
      cuda_on_cpu::last_thread_first = step % 2 == 1;
      TANDEM_LAUNCH("", store, dim3(1), dim3(kStoreThreads), nullptr, shape, DqnOffsets{}, work, ExtraBlocks{});
      cuda_on_cpu::last_thread_first = false;
      ASSERT_EQ(words, expected) << step;
      ASSERT_EQ(written, expected_written) << step;
      ASSERT_EQ(std::memcmp(ring.data(), expected_ring.data(), all * sizeof(ReplayRow)), 0) << step;
      ASSERT_EQ(episodes, over) << step;
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
