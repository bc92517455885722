// The DQN's net as a fused MLP beside layer by layer, on emulated tensor cores.
#define TANDEM_EMULATED_TENSOR_CORES
#define TANDEM_EMULATED_WARPGROUPS
#include "rl/dqn/gpu/fused_net.cu"  // NOLINT(bugprone-suspicious-include)

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "rl/dqn/gpu/after_update.cu"  // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/layers.cu"        // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/learn.cu"         // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/replay_store.cu"  // NOLINT(bugprone-suspicious-include)

namespace tandem::cuda {
namespace {

using Results = std::vector<std::vector<float>>;
constexpr int kBlocks[] = {16, 24, 40};  // rows of one

// To the bit.
void expect_equal(const Results& got, const Results& wanted, const std::string& which) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t v = 0; v < got.size(); ++v) {
    ASSERT_EQ(got[v].size(), wanted[v].size());
    for (size_t i = 0; i < got[v].size(); ++i)
      ASSERT_EQ(bits_of(got[v][i]), bits_of(wanted[v][i]))
          << which << ": number " << i << " of " << v << ", " << got[v][i] << " and " << wanted[v][i];
  }
}

// Two agents' nets, and rows of so many shards of each to learn from, or environments that decide.
struct Net {
  DqnShape shape;
  DqnOffsets offsets{};
  int rows;
  std::vector<float> nets, in, preact1, preact2, head_features, out1, out2, inv_std1, inv_std2, seen;
  std::vector<float> head_grad, norm_out_grad2, preact_grad2, norm_out_grad1, preact_grad1;
  std::vector<PackedFragment> packed;
  std::vector<uint32_t> drawn;
  std::vector<int32_t> actions;
  std::vector<int64_t> written, tree;
  std::vector<ReplayRow> ring;
  std::vector<ShardEnvironments> environments;
  std::vector<DqnShard> shards;
  std::vector<GpuDqnAgent> agents;
  StepParams params;
  DqnWork work{};

  Net(int count, int rows_per_shard, Precision precision = Precision::kFp32, int hidden1 = 512, int hidden2 = 256,
      int state = 128, int head = 128)
      : rows(rows_per_shard) {
    shape.agents = 2;
    shape.shards = 4;
    shape.first_shard = 1;
    shape.local_shards = count;
    shape.shard_batch = shape.environments = rows;
    shape.ring_rows = 2;
    shape.observation_size = state;
    shape.hidden1 = hidden1;  // the widest, 512: the next operand overlaps the output in shared memory
    shape.hidden2 = hidden2;
    shape.head = head;
    shape.actions = 10;
    shape.dropout = 0.2;
    shape.blocks.precision = precision;
    shape.levels = PriorityTree::places(rows * shape.ring_rows, shape.level_first);
    int64_t size = 0;
    const auto take = [&](int64_t& offset, int64_t number) {
      offset = size;
      size += (number + 3) / 4 * 4;
    };
    take(offsets.w1, shape.hidden1 * shape.observation_size);
    for (int64_t* of_hidden1 : {&offsets.b1, &offsets.scale1, &offsets.shift1}) take(*of_hidden1, shape.hidden1);
    take(offsets.w2, shape.hidden2 * shape.hidden1);
    for (int64_t* of_hidden2 : {&offsets.b2, &offsets.scale2, &offsets.shift2}) take(*of_hidden2, shape.hidden2);
    take(offsets.heads, 2 * shape.head * shape.hidden2);
    take(offsets.heads_bias, 2 * shape.head);
    take(offsets.value, shape.head);
    take(offsets.value_bias, 1);
    take(offsets.advantage, shape.actions * shape.head);
    take(offsets.advantage_bias, shape.actions);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, int64_t number) {
      for (int64_t i = 0; i < number; ++i) v.push_back(normal(random));
    };
    fill(nets, 4 * size);
    fill(in, int64_t{2} * shape.agent_shards() * rows * shape.observation_size);
    fill(head_grad, int64_t{shape.agent_shards()} * rows * 2 * shape.head);
    for (int j = 0; j < 2; ++j)
      agents.push_back(
          {nets.data() + 2 * j * size, nets.data() + (2 * j + 1) * size, nullptr, nullptr, nullptr, nullptr, 0});
    written.assign(shape.agent_shards() * rows, 3);
    for (int s = 0; s < shape.agent_shards(); ++s) {
      environments.emplace_back();
      environments.back().shard = static_cast<uint32_t>(3 + s);
    }
    params.key.seed = 11;
    params.explore = 0.2;
    work.agents = agents.data();
    work.environments = environments.data();
    work.params = &params;
  }
  void clear() {
    const int64_t learned = int64_t{shape.agent_shards()} * rows, all = 3 * learned;
    const auto give = [](float*& pointer, std::vector<float>& v, int64_t number) {
      v.assign(number, -1.0f);
      pointer = v.data();
    };
    give(work.preact1, preact1, all * shape.hidden1);
    give(work.preact2, preact2, all * shape.hidden2);
    give(work.head_features, head_features, all * 2 * shape.head);
    give(work.out1, out1, learned * shape.hidden1);
    give(work.out2, out2, learned * shape.hidden2);
    give(work.inv_std1, inv_std1, learned);
    give(work.inv_std2, inv_std2, learned);
    give(work.norm_out_grad2, norm_out_grad2, learned * shape.hidden2);
    give(work.preact_grad2, preact_grad2, learned * shape.hidden2);
    give(work.norm_out_grad1, norm_out_grad1, learned * shape.hidden1);
    give(work.preact_grad1, preact_grad1, learned * shape.hidden1);
    work.head_grad = head_grad.data();
    if (is_16bit(shape.blocks.precision)) {
      packed.assign(static_cast<size_t>(shape.agents * PackedNetLayout(shape).per_agent),
                    {{~0u, ~0u, ~0u, ~0u}});  // not numbers
      work.packed = packed.data();
    }
    seen.assign(learned * shape.ring_rows * shape.observation_size, -1.0f);
    actions.assign(learned, -1);
    work.actions = actions.data();
    work.states = work.observed = in.data();
    shards.clear();
    ring.resize(learned * shape.ring_rows);
    tree.resize(shape.agent_shards() * PriorityTree::words(rows * shape.ring_rows));
    for (int s = 0; s < shape.agent_shards(); ++s)
      shards.push_back({nullptr, seen.data() + s * rows * shape.ring_rows * shape.observation_size,
                        ring.data() + s * rows * shape.ring_rows, written.data() + s * rows,
                        tree.data() + s * PriorityTree::words(rows * shape.ring_rows), nullptr});
    work.shards = shards.data();
  }

  // Says what dropout leaves, as queue_act() would: a bit of every number, where layers look for it.
  void draw_beforehand() {
    const MaskShape mask = dropout_shape(shape.dropout);
    drawn.assign(size_t{2} * shape.agent_shards() * rows * 32, 0);
    for (int layer = 0; layer < 2; ++layer)
      for (int shard = 0; shard < shape.agent_shards(); ++shard)
        for (int row = 0; row < rows; ++row)
          for (int column = 0; column < (layer == 0 ? shape.hidden1 : shape.hidden2); ++column) {
            RandomKey key = params.key;
            key.shard = environments[shard].shard;
            key.site = kDropout + layer;
            const int64_t index = int64_t{row} * (layer == 0 ? shape.hidden1 : shape.hidden2) + column;
            const uint32_t word = random_block(key, static_cast<uint64_t>(index / 4)).word[index % 4];
            const size_t lane = ((size_t(layer) * shape.agent_shards() + shard) * rows + row) * 32 + column / 4 % 32;
            if (mask_from_u32(word, mask) != 0) drawn[lane] |= 1u << (column / 128 * 4 + column % 4);
          }
    work.dropout_bits = drawn.data();
  }
  // Asks for blocks of block_size tiles (up to four), or else of block_size rows: a fused MLP (true).
  bool set_block(int block_size) {
    const bool by_rows = block_size > 4;
    shape.blocks.tiles = by_rows ? 0 : block_size;
    shape.blocks.rows = by_rows ? block_size : 0;
    return by_rows;
  }
  // What forward leaves, by blocks of block_size tiles, or rows.
  Results forward(int block_size) {
    clear();
    if (set_block(block_size))
      EXPECT_TRUE(queue_fused_forward(shape, offsets, work, nullptr));
    else
      queue_forward(shape, offsets, work, nullptr);
    Results results{head_features, out1, out2, inv_std1, inv_std2};
    for (int s = 0; s < shape.agent_shards();
         ++s)  // of rows that are learned from; what others leave there nobody reads
      for (const auto& [preact, width] : {std::pair{&preact1, shape.hidden1}, {&preact2, shape.hidden2}}) {
        const auto first = preact->begin() + int64_t{s} * 3 * rows * width;
        results.emplace_back(first, first + int64_t{rows} * width);
      }
    return results;
  }
  // The gradients that backward leaves, after a forward pass.
  Results backward(int block_size) {
    forward(1);
    if (set_block(block_size))
      EXPECT_TRUE(queue_fused_backward(shape, offsets, work, nullptr));
    else
      queue_backward(shape, offsets, work, nullptr);
    return {norm_out_grad2, preact_grad2, norm_out_grad1, preact_grad1};
  }
  Results decisions(int block_size) {
    clear();
    if (set_block(block_size))
      EXPECT_TRUE(queue_fused_decisions(shape, offsets, work, nullptr));
    else
      queue_decisions(shape, offsets, work, nullptr);
    return {std::vector<float>(actions.begin(), actions.end()), seen};
  }
};

TEST(FusedNet, GivesTheBitsOfSingleLayers) {
  Net net(2, 9);  // blocks with rows of two shards, that end with rows of none
  const Results layers = net.forward(1);
  for (const float x : layers[0]) ASSERT_TRUE(std::isfinite(x));
  for (const int rows : kBlocks) expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
}

TEST(FusedNet, GivesThemForAWideLayerAfterANarrowOne) {
  Net net(1, 17, Precision::kFp32, 256, 512);
  const Results layers = net.forward(1);
  for (const int rows : kBlocks) expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
}

TEST(FusedNet, GivesThemForStatesOfSeveralLoads) {
  Net net(1, 11, Precision::kFp32, 256, 256, 256);
  const Results layers = net.forward(1), decided = net.decisions(1);
  for (const int rows : kBlocks) {
    expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
    expect_equal(net.decisions(rows), decided, std::to_string(rows) + " rows decide");
  }
}

TEST(FusedNet, GivesTheBitsOfSingleLayersInEveryPrecision) {
  Results head_features;
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    Net net(1, 3, precision);
    const Results layers = net.forward(1);
    head_features.push_back(layers[0]);
    for (const int rows : kBlocks)
      expect_equal(net.forward(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
  }
  for (size_t i = 1; i < head_features.size(); ++i) EXPECT_NE(head_features[i - 1], head_features[i]);
}

TEST(FusedNet, DecidesAsSingleLayersDo) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    Net net(2, 9, precision);
    const Results layers = net.decisions(1);
    for (const float action : layers[0]) ASSERT_GE(action, 0);
    for (const int rows : kBlocks)
      expect_equal(net.decisions(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
  }
}

TEST(FusedNet, GivesTheSameWhereDropoutWasDrawnBeforehand) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Net net(2, 5, precision);
    const Results layers = net.forward(1);
    net.draw_beforehand();
    expect_equal(net.forward(1), layers, "layer by layer");
    for (const int rows : {16, 40})
      expect_equal(net.forward(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
    net.drawn.assign(net.drawn.size(), 0);
    EXPECT_NE(net.forward(16), layers);  // it is what they go by
  }
}

TEST(FusedNet, GoesBackwardAsSingleLayersDo) {
  for (const auto& [precision, head] :
       {std::pair{Precision::kBf16, 64}, {Precision::kBf16, 128}, {Precision::kBf16, 256}, {Precision::kFp16, 128}}) {
    Net net(2, 9, precision, 512, 256, 128, head);
    const Results layers = net.backward(1);
    for (const float x : layers[3]) ASSERT_TRUE(std::isfinite(x) && x != -1.0f);
    expect_equal(net.backward(16), layers, fmt::format("in {}, heads of {}", static_cast<int>(precision), head));
  }
}

TEST(FusedNet, GoesBackwardThroughAWideLayerInAnyOrderOfThreads) {
  Net net(1, 11, Precision::kBf16, 256, 512);  // the next operand overlaps the output in shared memory
  const Results layers = net.backward(1);
  for (const bool last_first : {false, true}) {
    cuda_on_cpu::last_thread_first = last_first;
    const Results back = net.backward(16);
    cuda_on_cpu::last_thread_first = false;
    expect_equal(back, layers, last_first ? "last thread first" : "first thread first");
  }
}

// What a step keeps for the next one is what is made of all weights at once.
TEST(FusedNet, FindsPackedWeightsAndDropoutBitsThatAStepLeaves) {
  Net net(2, 9, Precision::kBf16);
  net.clear();
  net.set_block(16);
  DqnShape& shape = net.shape;
  const auto words = [&] {
    std::vector<uint32_t> all;
    for (const PackedFragment& fragment : net.packed)
      all.insert(all.end(), {fragment.words.x, fragment.words.y, fragment.words.z, fragment.words.w});
    return all;
  };
  queue_pack_weights(shape, net.offsets, net.work, nullptr);
  net.draw_beforehand();
  const std::vector<uint32_t> made = words(), drawn = net.drawn;
  net.packed.assign(net.packed.size(), {{~0u, ~0u, ~0u, ~0u}});
  net.drawn.assign(drawn.size(), ~0u);
  shape.environments = shape.batch = 0;  // nothing else is done
  std::vector<int64_t> priorities(2), episodes(shape.agent_shards());
  std::vector<float> sums(4), returns(shape.agent_shards());
  std::vector<StepOutputs> outputs(2);
  for (GpuDqnAgent& agent : net.agents) agent.max_priority = priorities.data();
  net.work.packed_resident = true;
  net.work.agent_sums = sums.data();
  net.work.shard_returns = returns.data();
  net.work.shard_episodes = episodes.data();
  net.work.outputs = outputs.data();
  const UpdateDecision decision;
  queue_after_update(shape, net.offsets, net.work, &decision, nullptr);
  const size_t of_agent = 4 * static_cast<size_t>(PackedNetLayout(shape).per_agent),
               of_net = 4 * static_cast<size_t>(PackedNetLayout(shape).per_net);
  const std::vector<uint32_t> first = words();
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(first[i], i % of_agent < of_net ? made[i] : ~0u) << i;
  queue_act(shape, net.offsets, net.work, nullptr, nullptr);
  EXPECT_EQ(words(), made);
  EXPECT_EQ(net.drawn, drawn);
}

TEST(FusedNet, DoesNotDependOnTheOrderOfThreadsNorOnWhenWgmmaCompletes) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    Net net(1, 11, precision);  // some warps have two rows, but in blocks of 16
    for (const int rows : kBlocks) {
      const Results once = net.forward(rows);
      cuda_on_cpu::last_thread_first = true;
      async_completes_early = true;
      const Results again = net.forward(rows);
      cuda_on_cpu::last_thread_first = async_completes_early = false;
      expect_equal(again, once, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
    }
  }
}

TEST(FusedNet, KeepsNan) {
  Net net(1, 5);
  net.in[3 * 128 + 100] = std::nanf("");
  const auto head_features = net.forward(16)[0];
  for (int row = 0; row < 5; ++row) EXPECT_EQ(std::isfinite(head_features[row * 256 + 7]), row != 3) << row;
}

TEST(FusedNet, AreLeftToLayersWhereSizesDoNotFit) {
  Net net(1, 5);
  net.shape.blocks.rows = 16;
  const auto queued = [&](int state, int hidden1, int hidden2) {
    net.shape.observation_size = state, net.shape.hidden1 = hidden1, net.shape.hidden2 = hidden2;
    return queue_fused_forward(net.shape, net.offsets, net.work, nullptr);
  };
  EXPECT_FALSE(queued(128, 500, 256));
  EXPECT_FALSE(queued(100, 512, 256));
  EXPECT_FALSE(queued(128, 384, 256));  // k = 384: three slices to a split
  EXPECT_FALSE(queued(128, 512, 512));  // no room for head_features
  EXPECT_FALSE(queued(128, 1024, 256));
  EXPECT_TRUE(Rows24<Precision::kFp32>::fits(512, 384));
  EXPECT_TRUE(Rows40<Precision::kFp32>::fits(512, 384));
  EXPECT_TRUE(Rows40<Precision::kTf32>::fits(512, 384));
}

}  // namespace
}  // namespace tandem::cuda
