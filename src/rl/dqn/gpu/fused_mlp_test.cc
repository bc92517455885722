// A net's layers of some rows by one block beside layer by layer, on tensor cores that the CPU plays.
#define TANDEM_EMULATED_TENSOR_CORES
#define TANDEM_EMULATED_WARPGROUPS
#include "rl/dqn/gpu/fused_mlp.cu"  // NOLINT(bugprone-suspicious-include)

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "rl/dqn/gpu/layers.cu"        // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/learn.cu"         // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/replay_store.cu"  // NOLINT(bugprone-suspicious-include)
#include "rl/dqn/gpu/update_rows.cu"   // NOLINT(bugprone-suspicious-include)

namespace tandem::cuda {
namespace {

using Left = std::vector<std::vector<float>>;
constexpr int kBlocks[] = {16, 24, 32, 40};  // rows of one

// To the bit.
void expect_equal(const Left& got, const Left& wanted, const std::string& which) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t v = 0; v < got.size(); ++v) {
    ASSERT_EQ(got[v].size(), wanted[v].size());
    for (size_t i = 0; i < got[v].size(); ++i)
      ASSERT_EQ(bits_of(got[v][i]), bits_of(wanted[v][i]))
          << which << ": number " << i << " of " << v << ", " << got[v][i] << " and " << wanted[v][i];
  }
}

// Two jobs' nets, and rows of so many shards of each to learn from, or environments that decide.
struct Net {
  DqnShape shape;
  DqnPlaces places{};
  int rows;
  std::vector<float> nets, in, sums1, sums2, both, out1, out2, inverse1, inverse2, seen;
  std::vector<float> both_grad, dz2, dx2, dz1, dx1;
  std::vector<HalvesOfLane> halves;
  std::vector<uint32_t> drawn;
  std::vector<int32_t> actions;
  std::vector<int64_t> written, tree;
  std::vector<ReplayRow> ring;
  std::vector<GpuSet> worlds;
  std::vector<DqnShard> shards;
  std::vector<DqnJob> jobs;
  StepParams order;
  DqnWork work{};

  Net(int count, int rows_of_shard, Precision precision = Precision::kFp32, int wide = 512, int narrow = 256,
      int state = 128, int head = 128)
      : rows(rows_of_shard) {
    shape.jobs = 2;
    shape.shards = 4;
    shape.first = 1;
    shape.count = count;
    shape.piece = shape.environments = rows;
    shape.rows = 2;
    shape.state = state;
    shape.wide = wide;  // the widest, 512: halves take the place of sums
    shape.narrow = narrow;
    shape.head = head;
    shape.actions = 10;
    shape.dropout = 0.2;
    shape.precision = precision;
    shape.levels = PriorityTree::places(rows * shape.rows, shape.level_first);
    int64_t size = 0;
    const auto take = [&](int64_t& place, int64_t number) {
      place = size;
      size += (number + 3) / 4 * 4;
    };
    take(places.w1, shape.wide * shape.state);
    for (int64_t* of_wide : {&places.b1, &places.scale1, &places.shift1}) take(*of_wide, shape.wide);
    take(places.w2, shape.narrow * shape.wide);
    for (int64_t* of_narrow : {&places.b2, &places.scale2, &places.shift2}) take(*of_narrow, shape.narrow);
    take(places.heads, 2 * shape.head * shape.narrow);
    take(places.heads_bias, 2 * shape.head);
    take(places.value, shape.head);
    take(places.value_bias, 1);
    take(places.advantage, shape.actions * shape.head);
    take(places.advantage_bias, shape.actions);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, int64_t number) {
      for (int64_t i = 0; i < number; ++i) v.push_back(normal(random));
    };
    fill(nets, 4 * size);
    fill(in, int64_t{2} * shape.sets() * rows * shape.state);
    fill(both_grad, int64_t{shape.sets()} * rows * 2 * shape.head);
    for (int j = 0; j < 2; ++j)
      jobs.push_back({nets.data() + 2 * j * size, nets.data() + (2 * j + 1) * size, nullptr, nullptr, nullptr, 0});
    written.assign(shape.sets() * rows, 3);
    for (int s = 0; s < shape.sets(); ++s) {
      worlds.emplace_back();
      worlds.back().shard = static_cast<uint32_t>(3 + s);
    }
    order.key.seed = 11;
    order.explore = 0.2;
    work.jobs = jobs.data();
    work.worlds = worlds.data();
    work.order = &order;
  }
  void clear() {
    const int64_t learned = int64_t{shape.sets()} * rows, all = 3 * learned;
    const auto give = [](float*& to, std::vector<float>& v, int64_t number) {
      v.assign(number, -1.0f);
      to = v.data();
    };
    give(work.sums1, sums1, all * shape.wide);
    give(work.sums2, sums2, all * shape.narrow);
    give(work.both, both, all * 2 * shape.head);
    give(work.out1, out1, learned * shape.wide);
    give(work.out2, out2, learned * shape.narrow);
    give(work.inverse1, inverse1, learned);
    give(work.inverse2, inverse2, learned);
    give(work.dz2, dz2, learned * shape.narrow);
    give(work.dx2, dx2, learned * shape.narrow);
    give(work.dz1, dz1, learned * shape.wide);
    give(work.dx1, dx1, learned * shape.wide);
    work.both_grad = both_grad.data();
    if (is_of_halves(shape.precision)) {
      halves.assign(static_cast<size_t>(shape.jobs * DqnHalves(shape).all), {{~0u, ~0u, ~0u, ~0u}});  // not numbers
      work.halves = halves.data();
    }
    seen.assign(learned * shape.rows * shape.state, -1.0f);
    actions.assign(learned, -1);
    work.actions = actions.data();
    work.states = work.observed = in.data();
    shards.clear();
    ring.resize(learned * shape.rows);
    tree.resize(shape.sets() * PriorityTree::words(rows * shape.rows));
    for (int s = 0; s < shape.sets(); ++s)
      shards.push_back({nullptr, seen.data() + s * rows * shape.rows * shape.state, ring.data() + s * rows * shape.rows,
                        written.data() + s * rows, tree.data() + s * PriorityTree::words(rows * shape.rows), nullptr});
    work.shards = shards.data();
  }

  // Says what dropout leaves, as queue_act() would: a bit of every number, where layers look for it.
  void draw_beforehand() {
    const MaskShape mask = dropout_shape(shape.dropout);
    drawn.assign(size_t{2} * shape.sets() * rows * 32, 0);
    for (int layer = 0; layer < 2; ++layer)
      for (int set = 0; set < shape.sets(); ++set)
        for (int row = 0; row < rows; ++row)
          for (int column = 0; column < (layer == 0 ? shape.wide : shape.narrow); ++column) {
            RandomKey key = order.key;
            key.shard = worlds[set].shard;
            key.site = kDropout + layer;
            const int64_t at = int64_t{row} * (layer == 0 ? shape.wide : shape.narrow) + column;
            const uint32_t word = random_block(key, static_cast<uint64_t>(at / 4)).word[at % 4];
            const size_t lane = ((size_t(layer) * shape.sets() + set) * rows + row) * 32 + column / 4 % 32;
            if (mask_from_u32(word, mask) != 0) drawn[lane] |= 1u << (column / 128 * 4 + column % 4);
          }
    work.left = drawn.data();
  }
  // Asks for blocks of up to four tiles, or of more rows.
  bool by_fused_mlp(int of_block) {
    const bool by_rows = of_block > 4;
    shape.tiles_of_block = by_rows ? 0 : of_block;
    shape.rows_of_block = by_rows ? of_block : 0;
    return by_rows;
  }
  // What a pass leaves, by blocks of so many tiles, or rows.
  Left forward(int of_block) {
    clear();
    if (by_fused_mlp(of_block))
      EXPECT_TRUE(queue_fused_forward(shape, places, work, nullptr));
    else
      queue_forward(shape, places, work, nullptr);
    Left left{both, out1, out2, inverse1, inverse2};
    for (int s = 0; s < shape.sets(); ++s)  // sums of rows that are learned from; what others leave there nobody reads
      for (const auto& [sums, width] : {std::pair{&sums1, shape.wide}, {&sums2, shape.narrow}}) {
        const auto first = sums->begin() + int64_t{s} * 3 * rows * width;
        left.emplace_back(first, first + int64_t{rows} * width);
      }
    return left;
  }
  // After a forward pass.
  Left back(int of_block) {
    forward(1);
    if (by_fused_mlp(of_block))
      EXPECT_TRUE(queue_fused_backward(shape, places, work, nullptr));
    else
      queue_backward(shape, places, work, nullptr);
    return {dz2, dx2, dz1, dx1};
  }
  Left decisions(int of_block) {
    clear();
    if (by_fused_mlp(of_block))
      EXPECT_TRUE(queue_fused_decisions(shape, places, work, nullptr));
    else
      queue_decisions(shape, places, work, nullptr);
    return {std::vector<float>(actions.begin(), actions.end()), seen};
  }
};

TEST(FusedMlp, LeaveWhatSingleLayersDo) {
  Net net(2, 9);  // blocks with rows of two shards, that end with rows of none
  const Left layers = net.forward(1);
  for (const float x : layers[0]) ASSERT_TRUE(std::isfinite(x));
  for (const int rows : kBlocks) expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
}

TEST(FusedMlp, LeaveItOfWideLayersAfterNarrowOnes) {
  Net net(1, 17, Precision::kFp32, 256, 512);
  const Left layers = net.forward(1);
  for (const int rows : kBlocks) expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
}

TEST(FusedMlp, LeaveItOfStatesThatAWarpFetchesInTurns) {
  Net net(1, 11, Precision::kFp32, 256, 256, 256);
  const Left layers = net.forward(1), decided = net.decisions(1);
  for (const int rows : kBlocks) {
    expect_equal(net.forward(rows), layers, std::to_string(rows) + " rows");
    expect_equal(net.decisions(rows), decided, std::to_string(rows) + " rows decide");
  }
}

TEST(FusedMlp, LeaveWhatSingleLayersDoOfFewerBits) {
  Left both;
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    Net net(1, 3, precision);
    const Left layers = net.forward(1);
    both.push_back(layers[0]);
    for (const int rows : kBlocks)
      expect_equal(net.forward(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
  }
  for (size_t i = 1; i < both.size(); ++i) EXPECT_NE(both[i - 1], both[i]);
}

TEST(FusedMlp, DecideAsSingleLayersDo) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    Net net(2, 9, precision);
    const Left layers = net.decisions(1);
    for (const float action : layers[0]) ASSERT_GE(action, 0);
    for (const int rows : kBlocks)
      expect_equal(net.decisions(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
  }
}

TEST(FusedMlp, LeaveTheSameWhereDropoutWasDrawnBeforehand) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Net net(2, 5, precision);
    const Left layers = net.forward(1);
    net.draw_beforehand();
    expect_equal(net.forward(1), layers, "layer by layer");
    for (const int rows : {16, 40})
      expect_equal(net.forward(rows), layers, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
    net.drawn.assign(net.drawn.size(), 0);
    EXPECT_NE(net.forward(16), layers);  // it is what they go by
  }
}

TEST(FusedMlp, GoBackAsSingleLayersDo) {
  for (const auto& [precision, head] :
       {std::pair{Precision::kBf16, 64}, {Precision::kBf16, 128}, {Precision::kBf16, 256}, {Precision::kFp16, 128}}) {
    Net net(2, 9, precision, 512, 256, 128, head);
    const Left layers = net.back(1);
    for (const float x : layers[3]) ASSERT_TRUE(std::isfinite(x) && x != -1.0f);
    expect_equal(net.back(16), layers, fmt::format("in {}, heads of {}", static_cast<int>(precision), head));
  }
}

TEST(FusedMlp, GoBackThroughAWideLayerInAnyOrderOfThreads) {
  Net net(1, 11, Precision::kBf16, 256, 512);  // halves take the place of sums
  const Left layers = net.back(1);
  for (const bool last_first : {false, true}) {
    cuda_on_cpu::last_thread_first = last_first;
    const Left back = net.back(16);
    cuda_on_cpu::last_thread_first = false;
    expect_equal(back, layers, last_first ? "last thread first" : "first thread first");
  }
}

// What a step keeps for the next one is what is made of all weights at once.
TEST(FusedMlp, FindHalvesAndDropoutThatAStepKeepsForThem) {
  Net net(2, 9, Precision::kBf16);
  net.clear();
  net.by_fused_mlp(16);
  DqnShape& shape = net.shape;
  const auto words = [&] {
    std::vector<uint32_t> all;
    for (const HalvesOfLane& piece : net.halves)
      all.insert(all.end(), {piece.words.x, piece.words.y, piece.words.z, piece.words.w});
    return all;
  };
  queue_halves(shape, net.places, net.work, nullptr);
  net.draw_beforehand();
  const std::vector<uint32_t> made = words(), drawn = net.drawn;
  net.halves.assign(net.halves.size(), {{~0u, ~0u, ~0u, ~0u}});
  net.drawn.assign(drawn.size(), ~0u);
  shape.environments = shape.batch = 0;  // nothing else is done
  std::vector<int64_t> tops(2), episodes(shape.sets());
  std::vector<float> sums(4), returns(shape.sets());
  std::vector<StepOutputs> told(2);
  for (DqnJob& job : net.jobs) job.tops = tops.data();
  net.work.halves_kept = true;
  net.work.job_sums = sums.data();
  net.work.shard_returns = returns.data();
  net.work.shard_episodes = episodes.data();
  net.work.told = told.data();
  const UpdateDecision plan;
  queue_applied(shape, net.places, net.work, &plan, nullptr);
  const size_t of_job = 4 * static_cast<size_t>(DqnHalves(shape).all),
               of_net = 4 * static_cast<size_t>(DqnHalves(shape).of_net);
  const std::vector<uint32_t> first = words();
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(first[i], i % of_job < of_net ? made[i] : ~0u) << i;
  queue_act(shape, net.places, net.work, nullptr, nullptr);
  EXPECT_EQ(words(), made);
  EXPECT_EQ(net.drawn, drawn);
}

TEST(FusedMlp, DoNotDependOnTheOrderOfThreadsNorOnWhenProductsAreMade) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    Net net(1, 11, precision);  // some warps have two rows, but in blocks of 16
    for (const int rows : kBlocks) {
      const Left once = net.forward(rows);
      cuda_on_cpu::last_thread_first = true;
      copies_come_at_once = true;
      const Left again = net.forward(rows);
      cuda_on_cpu::last_thread_first = copies_come_at_once = false;
      expect_equal(again, once, fmt::format("{} rows in {}", rows, static_cast<int>(precision)));
    }
  }
}

TEST(FusedMlp, KeepNotANumber) {
  Net net(1, 5);
  net.in[3 * 128 + 100] = std::nanf("");
  const auto both = net.forward(16)[0];
  for (int row = 0; row < 5; ++row) EXPECT_EQ(std::isfinite(both[row * 256 + 7]), row != 3) << row;
}

// Lanes that put a row's numbers at the same time must reach all 32 banks, as must those that put a product's sums.
template <class Block>
void expect_no_bank_twice() {
  unsigned banks = 0;
  for (int lane = 0; lane < 32; ++lane) banks |= 1u << Block::place(5, lane * 4) % 32;
  EXPECT_EQ(banks, 0xFFFFFFFFu);
  for (const int width : {256, 512}) {
    banks = 0;  // lane 4 g + t has row 2 t of column g
    for (int lane = 0; lane < 32; ++lane) banks |= 1u << (lane % 4 * 2 * (width + Block::kPad) + lane / 4) % 32;
    EXPECT_EQ(banks, 0xFFFFFFFFu);
  }
}
TEST(FusedMlp, MeetNoBankTwice) {
  expect_no_bank_twice<FewRows<Precision::kFp32>>();
  expect_no_bank_twice<SomeRows<Precision::kFp32>>();
  expect_no_bank_twice<MoreRows<Precision::kFp32>>();
  expect_no_bank_twice<ManyRows<Precision::kFp32>>();
  expect_no_bank_twice<FewRows<Precision::kBf16>>();
  expect_no_bank_twice<SomeRows<Precision::kBf16>>();
  expect_no_bank_twice<MoreRows<Precision::kBf16>>();
  expect_no_bank_twice<ManyRows<Precision::kBf16>>();
}

TEST(FusedMlp, AreLeftToLayersWhereSizesDoNotFit) {
  Net net(1, 5);
  net.shape.rows_of_block = 16;
  const auto queued = [&](int state, int wide, int narrow) {
    net.shape.state = state, net.shape.wide = wide, net.shape.narrow = narrow;
    return queue_fused_forward(net.shape, net.places, net.work, nullptr);
  };
  EXPECT_FALSE(queued(128, 500, 256));
  EXPECT_FALSE(queued(100, 512, 256));
  EXPECT_FALSE(queued(128, 384, 256));  // a depth of three slices
  EXPECT_FALSE(queued(128, 512, 512));  // no room for both
  EXPECT_FALSE(queued(128, 1024, 256));
  EXPECT_TRUE(SomeRows<Precision::kFp32>::holds(512, 384));
  EXPECT_TRUE(MoreRows<Precision::kFp32>::holds(512, 384));
  EXPECT_TRUE(ManyRows<Precision::kFp32>::holds(512, 384));
  EXPECT_TRUE(ManyRows<Precision::kTf32>::holds(512, 384));
}

TEST(FusedMlp, AreTakenInTheSmallestBlocksThatFindRoomAtOnce) {
  DqnShape shape;
  const auto taken = [&](int nets, int rows, bool fit = true) {
    int of_block = 0;
    const bool some = with_rows(
        shape, nets, rows, /*least=*/48, [&](auto) { return fit; }, [](auto) { return nullptr; },
        [&](auto block) { of_block = block.kRows; });
    EXPECT_EQ(some, of_block > 0);
    return of_block;
  };
  ASSERT_EQ(processors(), 4);
  EXPECT_EQ(taken(3, 15), 0);  // layers are faster
  EXPECT_EQ(taken(3, 16), 16);
  EXPECT_EQ(taken(4, 17), 24);
  EXPECT_EQ(taken(2, 48), 24);
  EXPECT_EQ(taken(2, 50), 32);
  EXPECT_EQ(taken(4, 33), 40);
  EXPECT_EQ(taken(4, 400), 40);  // there are none larger
  EXPECT_EQ(taken(4, 400, false), 0);
  for (const int asked : kBlocks) {
    shape.rows_of_block = asked;
    EXPECT_EQ(taken(1, 1), asked);
    EXPECT_EQ(taken(4, 400, false), 0);
  }
  shape.rows_of_block = 20;
  EXPECT_EQ(taken(4, 400), 0);
  shape.rows_of_block = 0;
  shape.tiles_of_block = 4;
  EXPECT_EQ(taken(4, 400), 0);
}

}  // namespace
}  // namespace tandem::cuda
