// GEMM in every block shape, on emulated tensor cores (kernels/gpu/mma.h).
#define TANDEM_EMULATED_TENSOR_CORES
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/gpu/gemm_linear.h"

namespace tandem::cuda {
namespace {

// C [m, n] = A * B, operands as their layouts say. By shards: K is eight matrices of extent k, one to a split.
struct GemmProblem {
  int m, n, k;
  bool by_shards;
  std::vector<float> a, b, c;
};

template <class BlockShape, Layout a_layout, Layout b_layout>
void gemm_kernel(GemmProblem& p) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const int first_row = blockIdx.y * BlockShape::kTilesM * kTileRows,
            first_column = blockIdx.x * BlockShape::kTilesN * kTileColumns;
  const auto stride = [&](Layout layout, int extent) { return int64_t{layout == Layout::kKInner ? p.k : extent}; };
  Operand<b_layout> b{p.b.data(), stride(b_layout, p.n), p.n - first_column, p.k};
  b.data += b.offset(first_column, 0);
  gemm_block<BlockShape, a_layout, b_layout>(
      memory,
      [&](int t) {
        const int row = first_row + t * kTileRows;
        Operand<a_layout> a{p.a.data(), stride(a_layout, p.m), p.m - row, p.k};
        a.data += a.offset(row, 0);
        return a;
      },
      b, p.by_shards ? SplitK{int64_t{p.m} * p.k, int64_t{p.n} * p.k, 0, kSliceK} : interleaved_split_k(),
      [&](int t) {
        const OutputTile<BlockShape> output{p.c.data() + (first_row + t * kTileRows) * p.n + first_column, p.n,
                                            p.m - first_row - t * kTileRows, p.n - first_column};
        return [output](int row, int column, float4 y) {
          if (output.has(row, column)) output.store(row, column, y);
        };
      });
}

template <class BlockShape, Layout a_layout, Layout b_layout>
std::vector<float> gemm_by(GemmProblem p) {
  emulated_copies.clear();
  p.c.assign(p.m * p.n, std::nanf(""));
  TANDEM_LAUNCH("", (gemm_kernel<BlockShape, a_layout, b_layout>),
                dim3(ceil_div(p.n, kTileColumns * BlockShape::kTilesN), ceil_div(p.m, kTileRows * BlockShape::kTilesM)),
                dim3(BlockShape::kThreads), nullptr, p);
  return p.c;
}

// Every block shape gives the bits of single tiles, and these are within 1e-6 of the sum of magnitudes (tensor cores
// add in fp32) of the sum in double. 2 x 2 tiles also with threads in reverse and with copies that land at once.
template <Layout a_layout, Layout b_layout, Precision precision = Precision::kFp32>
void expect_one_result(int m, int n, int k, bool by_shards = false) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
  std::mt19937 random(k);
  std::normal_distribution<float> normal;
  GemmProblem p{m, n, k, by_shards, {}, {}, {}};
  const int count = by_shards ? kSplitK : 1;
  for (int i = 0; i < count * k * m; ++i) p.a.push_back(normal(random));
  for (int i = 0; i < count * k * n; ++i) p.b.push_back(normal(random));
  const std::vector<float> one = gemm_by<OneTile<precision>, a_layout, b_layout>(p);
  const auto element = [&](const std::vector<float>& v, Layout layout, int extent, int shard, int i, int kk) {
    return static_cast<double>(
        rounded(precision, v[shard * k * extent + (layout == Layout::kKInner ? i * k + kk : kk * extent + i)]));
  };
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0, all = 0;
      for (int s = 0; s < count; ++s)
        for (int kk = 0; kk < k; ++kk) {
          const double term = element(p.a, a_layout, m, s, i, kk) * element(p.b, b_layout, n, s, j, kk);
          sum += term;
          all += std::abs(term);
        }
      ASSERT_NEAR(one[i * n + j], sum, 1e-6 * all) << i << " " << j;
    }
  EXPECT_EQ(one, (gemm_by<TwoTiles<precision>, a_layout, b_layout>(p)));
  if (m % 64 != 0 || n % 64 != 0 || k % (by_shards ? kSliceK : kSplitK * kSliceK) != 0) return;
  for (const bool reversed : {false, true})
    for (const bool early : {false, true}) {
      cuda_on_cpu::last_thread_first = reversed;
      async_completes_early = early;
      EXPECT_EQ(one, (gemm_by<FourTiles<precision>, a_layout, b_layout>(p))) << reversed << early;
    }
  cuda_on_cpu::last_thread_first = async_completes_early = false;
}

// Remainders in every dimension: tiles, slices and splits that are cut or empty.
template <Precision precision>
void expect_cut_tiles() {
  expect_one_result<Layout::kKInner, Layout::kKInner, precision>(44, 44, 36);
  expect_one_result<Layout::kKInner, Layout::kKInner, precision>(33, 100, 20);  // five of eight splits are empty
  expect_one_result<Layout::kKInner, Layout::kKOuter, precision>(1, 4, 132);
  expect_one_result<Layout::kKInner, Layout::kKOuter, precision>(65, 36, 140);
  expect_one_result<Layout::kKOuter, Layout::kKOuter, precision>(44, 68, 21, true);
}

TEST(GpuGemm, ForwardOfALayerIsTheSameInEveryBlockShape) {
  for (const int k : {128, 512}) expect_one_result<Layout::kKInner, Layout::kKInner>(64, 64, k);
  expect_one_result<Layout::kKInner, Layout::kKInner>(128, 192, 384);
}
TEST(GpuGemm, BackwardOfALayerIsTheSameInEveryBlockShape) {
  for (const int k : {128, 256}) expect_one_result<Layout::kKInner, Layout::kKOuter>(64, 64, k);
  expect_one_result<Layout::kKInner, Layout::kKOuter>(192, 64, 640);
}
TEST(GpuGemm, SumsOverShardsAreTheSameInEveryBlockShape) {
  for (const int k : {16, 64}) expect_one_result<Layout::kKOuter, Layout::kKOuter>(64, 64, k, true);
  expect_one_result<Layout::kKOuter, Layout::kKOuter>(64, 128, 112, true);
}
TEST(GpuGemm, TilesMayBeCutAnywhere) { expect_cut_tiles<Precision::kFp32>(); }

template <Precision precision>
void expect_rounded_operands() {
  expect_one_result<Layout::kKInner, Layout::kKInner, precision>(64, 128, 256);
  expect_one_result<Layout::kKInner, Layout::kKOuter, precision>(64, 64, 128);
  expect_one_result<Layout::kKOuter, Layout::kKOuter, precision>(64, 64, 32, true);
  expect_cut_tiles<precision>();
}
TEST(GpuGemm, InFewerBitsIsThatOfRoundedOperands) {
  expect_rounded_operands<Precision::kTf32>();
  expect_rounded_operands<Precision::kBf16>();
  expect_rounded_operands<Precision::kFp16>();
}

template <Precision precision>
void expect_nan_stays(float bad) {
  constexpr int kSize = 64;
  GemmProblem p{kSize, kSize, 128, false, std::vector<float>(128 * kSize, 1), std::vector<float>(128 * kSize, 1), {}};
  p.a[5 * 128 + 77] = bad;
  for (const auto& out : {gemm_by<FourTiles<precision>, Layout::kKInner, Layout::kKInner>(p),
                          gemm_by<OneTile<precision>, Layout::kKInner, Layout::kKInner>(p)})
    for (int i = 0; i < kSize; ++i) EXPECT_EQ(std::isfinite(out[i * kSize + 3]), i != 5) << static_cast<int>(precision);
}
TEST(GpuGemm, NanAndInfinityGoThroughInEveryPrecision) {
  for (const float bad : {std::bit_cast<float>(0x7FFFFFFFu), std::bit_cast<float>(0xFFC00000u), INFINITY}) {
    expect_nan_stays<Precision::kFp32>(bad);
    expect_nan_stays<Precision::kTf32>(bad);
    expect_nan_stays<Precision::kBf16>(bad);
    expect_nan_stays<Precision::kFp16>(bad);
  }
  expect_nan_stays<Precision::kFp16>(70000.0f);  // overflows
}

// The eight lanes that shared memory serves at once must reach all 32 banks.
template <Layout layout>
void expect_no_bank_conflict() {
  for (int j = 0; j < 4; ++j)
    for (int first = 0; first < 32; first += 8) {
      unsigned banks = 0;
      for (int lane = first; lane < first + 8; ++lane)
        banks |= 1u << StagedOperand<layout>::fragment_offset(lane / 4, lane % 4, j) / 4 % 8;
      EXPECT_EQ(banks, 0xFFu) << j << " " << first;
    }
}
TEST(GpuGemm, LoadsOfStagedOperandsHaveNoBankConflicts) {
  expect_no_bank_conflict<Layout::kKInner>();
  expect_no_bank_conflict<Layout::kKOuter>();
}

// ---- the three GEMMs of a linear layer ----

template <class BlockShape>
void linear_kernel(const GemmShape& shape, const float* in, const float* weight, const float* bias, bool relu,
                   bool backward, float* out) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  const RowTiles tiles(shape.groups, shape.m);
  const int first_tile = blockIdx.y * BlockShape::kTilesM,
            first_column = blockIdx.x * BlockShape::kTilesN * kTileColumns;
  const auto row = [&](int tile) { return int64_t{tiles.group(tile)} * shape.m + tiles.row(tile); };
  const auto in_row = [&](int tile) { return in + row(tile) * shape.k; };
  const auto out_row = [&](int tile) { return out + row(tile) * shape.n; };
  if (backward)
    linear_backward_block<BlockShape>(memory, shape, tiles, first_tile, first_column, weight, in_row, out_row);
  else
    linear_block<BlockShape>(memory, shape, tiles, first_tile, first_column, weight, bias, relu, in_row, out_row);
}

// Groups whose rows do not fill their tiles, in the shape that the launch takes by itself and in every other.
void expect_linear(const GemmShape& shape, bool relu, bool backward) {
  std::mt19937 random(shape.m);
  std::normal_distribution<float> normal;
  std::vector<float> in(shape.groups * shape.m * shape.k), weight(shape.n * shape.k), bias(shape.n);
  for (auto* v : {&in, &weight, &bias})
    for (float& x : *v) x = normal(random);
  const int rows = shape.groups * shape.m;
  std::vector<float> wanted;
  for (const int tiles : {0, 1, 2, 4}) {
    std::vector<float> out(rows * shape.n, std::nanf(""));
    with_block_shape(BlockChoice{.tiles = tiles}, shape.tiles(), has_full_blocks(shape), [&](auto chosen) {
      using BlockShape = decltype(chosen);
      emulated_copies.clear();
      const RowTiles row_tiles(shape.groups, shape.m);
      TANDEM_LAUNCH("", linear_kernel<BlockShape>,
                    dim3(ceil_div(shape.n, kTileColumns * BlockShape::kTilesN), row_tiles.blocks(BlockShape::kTilesM)),
                    dim3(BlockShape::kThreads), nullptr, shape, in.data(), weight.data(), bias.data(), relu, backward,
                    out.data());
    });
    if (wanted.empty()) {
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < shape.n; ++j) {
          double sum = backward ? 0 : bias[j], all = 1;
          for (int k = 0; k < shape.k; ++k) {
            const double term = double{in[i * shape.k + k]} * weight[backward ? k * shape.n + j : j * shape.k + k];
            sum += term;
            all += std::abs(term);
          }
          if (relu && sum < 0) sum = 0;
          ASSERT_NEAR(out[i * shape.n + j], sum, 1e-6 * all) << i << " " << j;
        }
      wanted = out;
    }
    EXPECT_EQ(out, wanted) << tiles;
  }
}
TEST(GpuGemm, LinearLayersOfAnySizeAddBiasAndRelu) {
  expect_linear({.groups = 3, .m = 11, .n = 84, .k = 52}, true, false);
  expect_linear({.groups = 2, .m = 32, .n = 64, .k = 128}, false, false);
  expect_linear({.groups = 5, .m = 40, .n = 36, .k = 24}, false, true);
  expect_linear({.groups = 4, .m = 64, .n = 128, .k = 256}, false, true);
}

template <class BlockShape>
void weight_gradient_kernel(const WeightGradient& layer, int rows_per_shard, const int32_t* merges, float* gradient) {
  TANDEM_SHARED(typename BlockShape::Memory, memory);
  if (merges)
    weight_gradient_tree<BlockShape, 4>(memory, layer, 0, kPairedShards, rows_per_shard, merges, blockIdx.x, gradient);
  else
    weight_gradient_pairs<BlockShape>(memory, layer, 0, rows_per_shard, blockIdx.x, gradient);
}
TEST(GpuGemm, WeightGradientsOverATreeOfPairsAreThoseOfAnyTree) {
  constexpr int32_t kMerges[kPairedShards] = {0, 1, 0, 2, 0, 1, 0, 3};
  for (const int rows_per_shard : {3, 16, 27}) {
    constexpr int kOut = 36, kIn = 52;
    std::mt19937 random(rows_per_shard);
    std::normal_distribution<float> normal;
    std::vector<float> output_grad(kPairedShards * rows_per_shard * kOut),
        input(kPairedShards * (rows_per_shard + 2) * kIn);  // a gap between shards
    for (auto* v : {&output_grad, &input})
      for (float& value : *v) value = normal(random);
    const WeightGradient layer{output_grad.data(), input.data(), int64_t{rows_per_shard + 2} * kIn, 4, kOut, kIn};
    std::vector<float> pairs(4 + kOut * kIn, -1), two = pairs, tree = pairs;
    using One = OneTile<Precision::kFp32>;
    using Two = TwoTiles<Precision::kFp32>;
    const int32_t* const none = nullptr;
    TANDEM_LAUNCH("", weight_gradient_kernel<One>, dim3(4), dim3(One::kThreads), nullptr, layer, rows_per_shard, none,
                  pairs.data());
    TANDEM_LAUNCH("", weight_gradient_kernel<Two>, dim3(2), dim3(Two::kThreads), nullptr, layer, rows_per_shard, none,
                  two.data());
    TANDEM_LAUNCH("", weight_gradient_kernel<One>, dim3(4), dim3(One::kThreads), nullptr, layer, rows_per_shard,
                  kMerges, tree.data());
    EXPECT_EQ(pairs, tree) << rows_per_shard;
    EXPECT_EQ(pairs, two) << rows_per_shard;
    double sum = 0;
    for (int s = 0; s < kPairedShards; ++s)
      for (int r = 0; r < rows_per_shard; ++r)
        sum += double{output_grad[(s * rows_per_shard + r) * kOut + 35]} *
               input[s * (rows_per_shard + 2) * kIn + r * kIn + 51];
    EXPECT_NEAR(pairs.back(), sum, 1e-4);
  }
}

TEST(GpuGemm, BlockShapesAreChosenByTheNumberOfTiles) {
  const auto taken = [](int64_t tiles, bool full, int asked = 0) {
    int block_tiles = 0;
    with_block_shape({.tiles = asked}, tiles, full,
                     [&](auto block) { block_tiles = decltype(block)::kTilesM * decltype(block)::kTilesN; });
    return block_tiles;
  };
  EXPECT_EQ(taken(499, true), 1);
  EXPECT_EQ(taken(500, true), 4);
  EXPECT_EQ(taken(767, false), 1);
  EXPECT_EQ(taken(768, false), 2);
  EXPECT_EQ(taken(1, true, 4), 4);
  EXPECT_EQ(taken(1, false, 4), 2);
  EXPECT_EQ(taken(10000, true, 1), 1);
  EXPECT_TRUE(has_full_blocks({.groups = 2, .m = 32, .n = 64, .k = 128}));
  EXPECT_FALSE(has_full_blocks({.groups = 1, .m = 32, .n = 64, .k = 128}));
  EXPECT_FALSE(has_full_blocks({.groups = 2, .m = 32, .n = 64, .k = 144}));
  EXPECT_FALSE(has_full_blocks({.groups = 2, .m = 31, .n = 64, .k = 128}));
}

}  // namespace
}  // namespace tandem::cuda
