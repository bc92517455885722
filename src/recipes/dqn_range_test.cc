// Phases of the DQN on a GPU over ranges of shards, as workers that hold some of them run them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "recipes/emulated_dqn.h"
#include "reduce/exact_sum.h"

namespace tandem {
namespace {

// What several workers do, in one process: each part of the shards is run by itself, and the parts' sums are joined.
class InRanges : public ByPhases {
 public:
  using ByPhases::ByPhases;
  static inline std::vector<int> counts;  // shards of each part

  void run_batched(const Phase& phase, std::span<ShardContext> shards, std::span<const Subtree> sums) override {
    const SumTree tree(shards[0].shards);
    const size_t gradient = phase.gradients ? sums[0].gradient.size() : 0, tail = static_cast<size_t>(phase.floats);
    ExactSum<float> joined(tree, static_cast<int64_t>(gradient + tail));
    joined.begin();
    int first = 0;
    std::vector<std::vector<std::vector<float>>> kept;  // a root's vector is borrowed
    for (const int count : counts) {
      std::vector<std::vector<float>>& vectors = kept.emplace_back();
      std::vector<Subtree> parts;
      const std::vector<int> nodes = tree.cover(first, first + count);
      for (const int node : nodes) {
        vectors.emplace_back(gradient + tail, std::numeric_limits<float>::quiet_NaN());  // to be overwritten
        std::fill_n(vectors.back().end() - static_cast<int64_t>(tail), tail, 0.0f);
        const std::span<float> vector = vectors.back();
        parts.push_back({tree.node(node).first - first, tree.node(node).last - first, tree.merges(node),
                         vector.first(gradient), vector.last(tail)});
      }
      ByPhases::run_batched(phase, shards.subspan(static_cast<size_t>(first), static_cast<size_t>(count)), parts);
      if (phase.gradients)
        for (size_t k = 0; k < nodes.size(); ++k) joined.add_partial(nodes[k], vectors[k]);
      first += count;
    }
    if (!phase.gradients) return;
    const std::span<const float> total = joined.total();
    EXPECT_TRUE(std::ranges::none_of(total, [](float x) { return std::isnan(x); })) << "not overwritten";
    std::copy_n(total.begin(), gradient, sums[0].gradient.begin());
    std::copy_n(total.begin() + static_cast<int64_t>(gradient), tail, sums[0].tail.begin());
  }
};

std::unique_ptr<TrainLoop> trained_in_ranges(std::vector<int> counts, const WebAgentSettings& settings,
                                             const std::vector<std::string>& names, int steps) {
  InRanges::counts = std::move(counts);
  return trained<InRanges>(settings, names, steps);
}

TEST_F(EmulatedDqn, EveryRangeOfShardsGivesTheBitsOfItsShardsOneByOneAndOfTheFusedStep) {
  const WebAgentSettings settings = small(4);
  const auto fused = trained<Dqn>(settings, {"analysis"}, 3);
  expect_equal(*fused, *trained<ShardByShard>(settings, {"analysis"}, 3));
  expect_equal(*fused, *trained<ByPhases>(settings, {"analysis"}, 3));
  for (const std::vector<int>& counts : {std::vector{3, 1}, {1, 2, 1}}) {
    SCOPED_TRACE(counts.size());
    expect_equal(*fused, *trained_in_ranges(counts, settings, {"analysis"}, 3));
  }
}

TEST_F(EmulatedDqn, SixAgentsShareTheLaunchesOfARange) {
  const WebAgentSettings settings = small(2);
  const std::vector<std::string>& names = WebAgentSettings::all_agents();
  const auto fused = trained<Dqn>(settings, names, 2);
  expect_equal(*fused, *trained<ByPhases>(settings, names, 2));
  expect_equal(*fused, *trained_in_ranges({1, 1}, settings, names, 2));
}

TEST_F(EmulatedDqn, InBf16EveryRangeGivesTheBitsOfTheFusedStep) {
  WebAgentSettings settings = small(3);
  settings.precision = "bf16";
  const auto fused = trained<Dqn>(settings, {"evolution"}, 2);
  expect_equal(*fused, *trained<ShardByShard>(settings, {"evolution"}, 2));
  expect_equal(*fused, *trained_in_ranges({2, 1}, settings, {"evolution"}, 2));
}

TEST_F(EmulatedDqn, ShardsThatWereGivenOtherMemoryAreFoundThere) {
  const WebAgentSettings settings = small(2);
  const auto fused = trained<Dqn>(settings, {"analysis"}, 2), moved = trained<ByPhases>(settings, {"analysis"}, 1);
  std::vector<std::vector<NamedTensor>> before;
  for (int shard = 0; shard < 2; ++shard) before.push_back(moved->state().shard_state(shard));
  moved->state().own({0, 2});
  for (int shard = 0; shard < 2; ++shard) {
    const std::vector<NamedTensor> after = moved->state().shard_state(shard);
    for (size_t i = 0; i < after.size(); ++i) {
      ASSERT_NE(after[i].tensor.data_ptr(), before[shard][i].tensor.data_ptr());
      after[i].tensor.copy_(before[shard][i].tensor);
      before[shard][i].tensor.zero_();
    }
  }
  moved->step();
  expect_equal(*fused, *moved);
}

// As after a resume: the host has not seen it.
TEST_F(EmulatedDqn, TheLargestPrioritySeenStaysWhateverTheNextErrorsAre) {
  constexpr int64_t kTop = int64_t{1} << 30;
  const WebAgentSettings settings = small(2);
  const auto fused = trained<Dqn>(settings, {"analysis"}, 1), phases = trained<ByPhases>(settings, {"analysis"}, 1);
  for (TrainLoop* const loop : {fused.get(), phases.get()}) {
    const auto top = [&] {
      for (const NamedTensor& t : loop->state().replicated_state())
        if (t.name.ends_with("priority_top_and_least")) return t.tensor.select(0, 0);
      throw std::logic_error("there is none");
    };
    top().fill_(kTop);
    loop->step();
    EXPECT_EQ(top().item<int64_t>(), kTop);
  }
  expect_equal(*fused, *phases);
}

// As after a worker was lost.
TEST_F(EmulatedDqn, OtherRangesInTheMiddleOfARunChangeNoBit) {
  const WebAgentSettings settings = small(4);
  const auto fused = trained<Dqn>(settings, {"execution"}, 3);
  const auto moved = trained_in_ranges({2, 2}, settings, {"execution"}, 1);
  for (const std::vector<int>& counts : {std::vector{4}, {1, 3}}) {
    InRanges::counts = counts;
    moved->step();
  }
  expect_equal(*fused, *moved);
}

TEST_F(EmulatedDqn, APhaseIsOneSetOfLaunchesForAllShardsOfAWorker) {
  const WebAgentSettings settings = small(4);
  for (const bool batched : {true, false}) {
    const auto loop =
        batched ? trained<ByPhases>(settings, {"analysis"}, 1) : trained<ShardByShard>(settings, {"analysis"}, 1);
    queued_calls.clear();
    loop->step();
    const int sets = batched ? 1 : 4;
    EXPECT_EQ(queued_calls.act, sets);
    EXPECT_EQ(queued_calls.serve, sets);
    EXPECT_EQ(queued_calls.learn, sets);
  }
}

// Captures nothing: a replay queues the work again. What it must not do is to run while it is captured.
class ReplayingGpu : public EmulatedDqnGpu {
 public:
  static inline int captured = 0, replayed = 0;
  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work, std::string*) override {
    struct Graph : CudaGraph {
      explicit Graph(std::function<void()> w) : work(std::move(w)) {}
      void replay() override {
        ++replayed;
        work();
      }
      std::function<void()> work;
    };
    ++captured;
    return std::make_unique<Graph>(work);
  }
};

TEST_F(EmulatedDqn, APhaseOfARangeIsCapturedAfterItsFirstStepAndReplayedFromThenOn) {
  const WebAgentSettings settings = small(2);
  const auto fused = trained<Dqn>(settings, {"analysis"}, 4);
  use_gpu(std::make_unique<ReplayingGpu>());
  const auto phases = trained<ByPhases>(settings, {"analysis"}, 1);
  ReplayingGpu::captured = ReplayingGpu::replayed = 0;
  for (int i = 0; i < 3; ++i) phases->step();
  EXPECT_EQ(ReplayingGpu::captured, 3);  // act, serve, learn
  EXPECT_EQ(ReplayingGpu::replayed, 9);
  expect_equal(*fused, *phases);

  ReplayingGpu::captured = 0;
  ::setenv("TANDEM_GRAPHS", "off", 1);
  trained<ByPhases>(settings, {"analysis"}, 3);
  ::unsetenv("TANDEM_GRAPHS");
  EXPECT_EQ(ReplayingGpu::captured, 0);
}

}  // namespace
}  // namespace tandem
