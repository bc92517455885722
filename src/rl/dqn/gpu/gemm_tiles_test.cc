// Products of tiles as the kernels of the DQN learner make them, on played tensor cores (kernels/gpu/mma.h).
#define TANDEM_EMULATED_TENSOR_CORES
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rl/dqn/gpu/gemm_staged.h"

namespace tandem::cuda {
namespace {

// out = left * right of size x size numbers, by blocks of one shape; the factors as they lie.
struct Problem {
  int size, depth, parts_of_set;  // how deep a part's factors are by themselves: 0: parts are every eighth slice
  std::vector<float> left, right, out;
};
constexpr int kWhole = 64, kCut = 44;  // the second: tiles of which a part is beyond the end

Parts parts_of(const Problem& p) {
  if (p.parts_of_set == 0) return slices_in_turn();
  const int64_t set = int64_t{p.size} * p.depth;
  return {set, set, 0, kSlice};
}

template <class Shape, Layout a_lies, Layout b_lies>
void product(Problem& p) {
  TANDEM_SHARED(typename Shape::Memory, memory);
  const int first_row = blockIdx.y * Shape::kDown * kTileRows,
            first_column = blockIdx.x * Shape::kAcross * kTileColumns;
  const auto stride = [&](Layout lies) { return int64_t{lies == Layout::kKInner ? p.depth : p.size}; };
  Factor<b_lies> b{p.right.data(), stride(b_lies), p.size - first_column, p.depth};
  b.data += b.place_of(first_column, 0);
  tile_products<Shape, a_lies, b_lies>(
      memory,
      [&](int t) {
        const int row = first_row + t * kTileRows;
        Factor<a_lies> a{p.left.data(), stride(a_lies), p.size - row, p.depth};
        a.data += a.place_of(row, 0);
        return a;
      },
      b, parts_of(p),
      [&](int t) {
        const Target<Shape> target{p.out.data() + (first_row + t * kTileRows) * p.size + first_column, p.size,
                                   p.size - first_row - t * kTileRows, p.size - first_column};
        return [target](int row, int column, float4 y) {
          if (target.has(row, column)) target.put(row, column, y);
        };
      });
}

template <class Shape, Layout a_lies, Layout b_lies>
std::vector<float> product_by(Problem p) {
  copies_ahead.clear();
  p.out.assign(p.size * p.size, std::nanf(""));
  TANDEM_LAUNCH("", (product<Shape, a_lies, b_lies>),
                dim3(cuts(p.size, kTileColumns * Shape::kAcross), cuts(p.size, kTileRows * Shape::kDown)),
                dim3(Shape::kThreads), nullptr, p);
  return p.out;
}

// 1e-6 of a sum's size may be lost: tensor cores add in fp32.
template <Layout a_lies, Layout b_lies, Precision precision = Precision::kFp32>
void expect_one_result(int depth, bool sets, int size = kWhole) {
  std::mt19937 random(depth);
  std::normal_distribution<float> normal;
  Problem p{size, depth, sets ? 1 : 0, {}, {}, {}};
  const int count = sets ? kParts : 1;
  for (int i = 0; i < count * depth * size; ++i) {
    p.left.push_back(normal(random));
    p.right.push_back(normal(random));
  }
  const std::vector<float> one = product_by<OneTile<precision>, a_lies, b_lies>(p);
  const auto at = [&](const std::vector<float>& v, Layout lies, int set, int i, int k) {
    return static_cast<double>(
        rounded(precision, v[set * depth * size + (lies == Layout::kKInner ? i * depth + k : k * size + i)]));
  };
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < size; ++j) {
      double sum = 0, all = 0;
      for (int s = 0; s < count; ++s)
        for (int k = 0; k < depth; ++k) {
          const double term = at(p.left, a_lies, s, i, k) * at(p.right, b_lies, s, j, k);
          sum += term;
          all += std::abs(term);
        }
      ASSERT_NEAR(one[i * size + j], sum, 1e-6 * all) << i << " " << j;
    }
  EXPECT_EQ(one, (product_by<TwoTiles<precision>, a_lies, b_lies>(p)));
  if (size != kWhole) return;
  for (const bool backwards : {false, true})
    for (const bool at_once : {false, true}) {
      cuda_on_cpu::last_thread_first = backwards;
      copies_come_at_once = at_once;
      EXPECT_EQ(one, (product_by<FourTiles<precision>, a_lies, b_lies>(p))) << backwards << at_once;
    }
  cuda_on_cpu::last_thread_first = copies_come_at_once = false;
}
template <Precision precision>
void expect_cut_tiles() {
  expect_one_result<Layout::kKInner, Layout::kKInner, precision>(36, false, kCut);
  expect_one_result<Layout::kKInner, Layout::kKOuter, precision>(132, false, kCut);
  expect_one_result<Layout::kKOuter, Layout::kKOuter, precision>(20, true, kCut);
}

TEST(TileProducts, OfALayerAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {128, 512}) expect_one_result<Layout::kKInner, Layout::kKInner>(depth, false);
}
TEST(TileProducts, OfTheWayBackAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {128, 256}) expect_one_result<Layout::kKInner, Layout::kKOuter>(depth, false);
}
TEST(TileProducts, OfGradientsByShardsAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {16, 64}) expect_one_result<Layout::kKOuter, Layout::kKOuter>(depth, true);
}
TEST(TileProducts, BeyondAnEndAreNotMade) { expect_cut_tiles<Precision::kFp32>(); }

template <Precision precision>
void expect_rounded_factors() {
  expect_one_result<Layout::kKInner, Layout::kKInner, precision>(256, false);
  expect_one_result<Layout::kKInner, Layout::kKOuter, precision>(128, false);
  expect_one_result<Layout::kKOuter, Layout::kKOuter, precision>(32, true);
  expect_cut_tiles<precision>();
}
TEST(TileProducts, OfFewerBitsAreThoseOfRoundedFactors) {
  expect_rounded_factors<Precision::kTf32>();
  expect_rounded_factors<Precision::kBf16>();
  expect_rounded_factors<Precision::kFp16>();
}

template <Precision precision>
void expect_not_a_number_stays(float bad) {
  Problem p{kWhole, 128, 0, std::vector<float>(128 * kWhole, 1.0f), std::vector<float>(128 * kWhole, 1.0f), {}};
  p.left[5 * 128 + 77] = bad;
  for (const auto& out : {product_by<FourTiles<precision>, Layout::kKInner, Layout::kKInner>(p),
                          product_by<OneTile<precision>, Layout::kKInner, Layout::kKInner>(p)})
    for (int i = 0; i < kWhole; ++i)
      EXPECT_EQ(std::isfinite(out[i * kWhole + 3]), i != 5) << static_cast<int>(precision);
}
TEST(TileProducts, NotANumberAndInfinityGoThroughInEveryPrecision) {
  for (const float bad : {std::bit_cast<float>(0x7FFFFFFFu), std::bit_cast<float>(0xFFC00000u), INFINITY}) {
    expect_not_a_number_stays<Precision::kFp32>(bad);
    expect_not_a_number_stays<Precision::kTf32>(bad);
    expect_not_a_number_stays<Precision::kBf16>(bad);
    expect_not_a_number_stays<Precision::kFp16>(bad);
  }
  expect_not_a_number_stays<Precision::kFp16>(70000.0f);  // too large for it
}

// The eight lanes that shared memory serves at once must reach all its 32 banks.
template <Layout lies>
void expect_no_bank_twice() {
  std::vector<float> piece(FourTiles<Precision::kFp32>::kPiece);
  for (int j = 0; j < 4; ++j)
    for (int first = 0; first < 32; first += 8) {
      unsigned banks = 0;
      for (int lane = first; lane < first + 8; ++lane) banks |= 1u << Piece<lies>::place(lane / 4, lane % 4, j) / 4 % 8;
      EXPECT_EQ(banks, 0xFFu) << j << " " << first;
    }
}
TEST(TileProducts, FetchesOfStagedFactorsMeetNoBankTwice) {
  expect_no_bank_twice<Layout::kKInner>();
  expect_no_bank_twice<Layout::kKOuter>();
}

}  // namespace
}  // namespace tandem::cuda
