// A net's layers of some rows by one block beside layer by layer, on tensor cores that the CPU plays.
#define TANDEM_PLAYED_TENSOR_CORES
#define TANDEM_PLAYED_GROUPS
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rl/cuda_dqn_net.cu"    // NOLINT(bugprone-suspicious-include)
#include "rl/cuda_dqn_whole.cu"  // NOLINT(bugprone-suspicious-include)

namespace tandem::cuda {
namespace {

struct Net {
  DqnShape shape;
  DqnPlaces places{};
  int rows, kinds;
  std::vector<float> online, target, in, sums1, sums2, both, out1, out2, inverse1, inverse2;
  std::vector<CardSet> worlds;
  std::vector<DqnJob> jobs;
  DqnOrder order;
  DqnWork work{};

  Net(int shards, int rows_of_set, bool learning) : rows(rows_of_set), kinds(learning ? 3 : 1) {
    shape.shards = shape.count = shards;
    shape.piece = rows;
    shape.state = 128;
    shape.wide = 512;  // the widest: halves take the place of sums
    shape.narrow = 256;
    shape.head = 128;
    shape.dropout = 0.2;
    int64_t size = 0;
    const auto take = [&](int64_t& place, int64_t count) {
      place = size;
      size += count;
    };
    take(places.w1, shape.wide * shape.state);
    for (int64_t* of_wide : {&places.b1, &places.scale1, &places.shift1}) take(*of_wide, shape.wide);
    take(places.w2, shape.narrow * shape.wide);
    for (int64_t* of_narrow : {&places.b2, &places.scale2, &places.shift2}) take(*of_narrow, shape.narrow);
    take(places.heads, 2 * shape.head * shape.narrow);
    take(places.heads_bias, 2 * shape.head);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, int64_t count) {
      for (int64_t i = 0; i < count; ++i) v.push_back(normal(random));
    };
    fill(online, size);
    fill(target, size);
    fill(in, int64_t{shards} * (learning ? 2 : 1) * rows * shape.state);
    jobs.push_back({online.data(), target.data(), nullptr, nullptr, nullptr, 0});
    for (int s = 0; s < shards; ++s) {
      worlds.emplace_back();
      worlds.back().shard = static_cast<uint32_t>(3 + s);
    }
    order.key.seed = 11;
  }

  // What a pass leaves, by blocks of so many tiles, or rows.
  std::vector<std::vector<float>> pass(int of_block) {
    const int64_t all = int64_t{shape.count} * kinds * rows, learned = int64_t{shape.count} * rows;
    const float none = -1.0f;
    sums1.assign(all * shape.wide, none);
    sums2.assign(all * shape.narrow, none);
    both.assign(all * 2 * shape.head, none);
    out1.assign(learned * shape.wide, none);
    out2.assign(learned * shape.narrow, none);
    inverse1.assign(learned, none);
    inverse2.assign(learned, none);
    work.jobs = jobs.data();
    work.worlds = worlds.data();
    work.order = &order;
    work.sums1 = sums1.data(), work.sums2 = sums2.data(), work.both = both.data();
    work.out1 = out1.data(), work.out2 = out2.data();
    work.inverse1 = inverse1.data(), work.inverse2 = inverse2.data();
    shape.tiles_of_block = of_block;
    const bool learning = kinds == 3;
    if (of_block > 4) {
      EXPECT_TRUE(
          queue_whole_forward(shape, places, work, in.data(), learning ? 2 : 1, kinds, rows, learning, nullptr));
    } else {
      queue_forward(shape, places, work, in.data(), learning ? 2 : 1, kinds, rows, learning, nullptr);
    }
    std::vector<std::vector<float>> left{both, out1, out2, inverse1, inverse2};
    if (learning)  // of rows that are learned from; what others leave there nobody reads
      for (int s = 0; s < shape.count; ++s)
        for (const auto& [sums, width] : {std::pair{&sums1, shape.wide}, {&sums2, shape.narrow}}) {
          const auto first = sums->begin() + int64_t{s} * kinds * rows * width;
          left.emplace_back(first, first + int64_t{rows} * width);
        }
    return left;
  }
};

TEST(WholeRows, LeaveWhatSingleLayersDo) {
  Net net(2, 9, true);  // blocks with rows of two shards, that end with rows of none
  const auto layers = net.pass(1);
  for (const float x : layers[0]) ASSERT_TRUE(std::isfinite(x));
  for (const int rows : {16, 40}) EXPECT_TRUE(net.pass(rows) == layers) << rows;
}

TEST(WholeRows, LeaveWhatSingleLayersDoOfFewerBits) {
  std::vector<std::vector<float>> both;
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    Net net(1, 7, false);
    net.shape.precision = precision;
    both.push_back(net.pass(1)[0]);
    for (const int rows : {16, 40})
      EXPECT_TRUE(net.pass(rows)[0] == both.back()) << rows << static_cast<int>(precision);
  }
  for (size_t i = 1; i < both.size(); ++i) EXPECT_NE(both[i - 1], both[i]);
}

TEST(WholeRows, DoNotDependOnTheOrderOfThreadsNorOnWhenProductsAreMade) {
  Net net(1, 7, false);
  for (const int rows : {16, 40}) {
    const auto once = net.pass(rows);
    cuda_on_cpu::last_thread_first = true;
    copies_come_at_once = true;
    EXPECT_TRUE(net.pass(rows) == once) << rows;
    cuda_on_cpu::last_thread_first = copies_come_at_once = false;
  }
}

TEST(WholeRows, KeepNotANumber) {
  Net net(1, 5, false);
  net.in[3 * 128 + 100] = std::nanf("");
  const auto both = net.pass(16)[0];
  for (int row = 0; row < 5; ++row) EXPECT_EQ(std::isfinite(both[row * 256 + 7]), row != 3) << row;
}

// Lanes that put their halves at the same time must reach all 32 banks, as must those that read sums by fours.
template <class Block>
void expect_no_bank_twice() {
  uint64_t banks = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const int column = lane * 4;
    banks |= uint64_t{1} << (column / kSlice * Block::kSliceWords + column / 4 % 4) % 32;
  }
  EXPECT_EQ(banks, 0xFFFFFFFFu);
  for (int width : {256, 512}) {
    uint64_t rows = 0;  // a product's: lane 4 g + t has row 2 t of column g
    for (int lane = 0; lane < 32; ++lane) rows |= uint64_t{1} << (lane % 4 * 2 * (width + Block::kPad) + lane / 4) % 32;
    EXPECT_EQ(rows, 0xFFFFFFFFu);
  }
}
TEST(WholeRows, MeetNoBankTwice) {
  expect_no_bank_twice<FewRows<Precision::kFp32>>();
  expect_no_bank_twice<ManyRows<Precision::kFp32>>();
  expect_no_bank_twice<FewRows<Precision::kBf16>>();
  expect_no_bank_twice<ManyRows<Precision::kBf16>>();
}

TEST(WholeRows, AreLeftToLayersWhereSizesDoNotFit) {
  Net net(1, 5, false);
  net.shape.tiles_of_block = 16;
  net.shape.wide = 500;
  EXPECT_FALSE(queue_whole_forward(net.shape, net.places, net.work, net.in.data(), 1, 1, 5, false, nullptr));
  net.shape.wide = 512;
  net.shape.state = 100;
  EXPECT_FALSE(queue_whole_forward(net.shape, net.places, net.work, net.in.data(), 1, 1, 5, false, nullptr));
}

}  // namespace
}  // namespace tandem::cuda
