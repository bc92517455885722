// Products of tiles as the kernels of the DQN learner make them, on played tensor cores (kernels/cuda_tensor_cores.h).
#define TANDEM_PLAYED_TENSOR_CORES
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rl/cuda_dqn_staged.h"

namespace tandem::cuda {
namespace {

// out = left * right of 64 x 64 numbers, by blocks of one shape; the factors as they lie.
struct Problem {
  int depth, parts_of_set;  // how deep a part's factors are by themselves: 0: parts are every eighth slice
  std::vector<float> left, right, out;
};
constexpr int kSize = 64;

Parts parts_of(const Problem& p) {
  if (p.parts_of_set == 0) return slices_in_turn();
  const int64_t set = int64_t{kSize} * p.depth;
  return {set, set, 0, kSlice};
}

template <class Shape, Lies a_lies, Lies b_lies>
void product(Problem& p) {
  TANDEM_SHARED(typename Shape::Memory, memory);
  const int first_row = blockIdx.y * Shape::kDown * kTileRows,
            first_column = blockIdx.x * Shape::kAcross * kTileColumns;
  const auto stride = [&](Lies lies) { return int64_t{lies == Lies::kDepthInside ? p.depth : kSize}; };
  Factor<b_lies> b{p.right.data(), stride(b_lies), kSize - first_column, p.depth};
  b.data += b.place_of(first_column, 0);
  tile_products<Shape, a_lies, b_lies>(
      memory,
      [&](int t) {
        const int row = first_row + t * kTileRows;
        Factor<a_lies> a{p.left.data(), stride(a_lies), kSize - row, p.depth};
        a.data += a.place_of(row, 0);
        return a;
      },
      b, parts_of(p),
      [&](int t) {
        const Target<Shape> target{p.out.data() + (first_row + t * kTileRows) * kSize + first_column, kSize, kTileRows,
                                   kSize - first_column};
        return [target](int row, int column, float4 y) {
          if (target.has(row, column)) target.put(row, column, y);
        };
      });
}

template <class Shape, Lies a_lies, Lies b_lies>
std::vector<float> product_by(Problem p) {
  copies_ahead.clear();
  p.out.assign(kSize * kSize, std::nanf(""));
  TANDEM_LAUNCH("", (product<Shape, a_lies, b_lies>),
                dim3(kSize / kTileColumns / Shape::kAcross, kSize / kTileRows / Shape::kDown), dim3(Shape::kThreads),
                nullptr, p);
  return p.out;
}

// What may be lost of a sum's size: tensor cores add in fp32.
template <Lies a_lies, Lies b_lies, Precision precision = Precision::kFp32>
void expect_one_result(int depth, bool sets) {
  std::mt19937 random(depth);
  std::normal_distribution<float> normal;
  Problem p{depth, sets ? 1 : 0, {}, {}, {}};
  const int count = sets ? kParts : 1;
  for (int i = 0; i < count * depth * kSize; ++i) {
    p.left.push_back(normal(random));
    p.right.push_back(normal(random));
  }
  const std::vector<float> one = product_by<OneTile<precision>, a_lies, b_lies>(p);
  const auto at = [&](const std::vector<float>& v, Lies lies, int set, int i, int k) {
    return static_cast<double>(
        rounded(precision, v[set * depth * kSize + (lies == Lies::kDepthInside ? i * depth + k : k * kSize + i)]));
  };
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      double sum = 0, size = 0;
      for (int s = 0; s < count; ++s)
        for (int k = 0; k < depth; ++k) {
          const double term = at(p.left, a_lies, s, i, k) * at(p.right, b_lies, s, j, k);
          sum += term;
          size += std::abs(term);
        }
      ASSERT_NEAR(one[i * kSize + j], sum, 1e-6 * size) << i << " " << j;
    }
  if constexpr (precision == Precision::kFp32) EXPECT_EQ(one, (product_by<TwoTiles<precision>, a_lies, b_lies>(p)));
  for (const bool backwards : {false, true})
    for (const bool at_once : {false, true}) {
      cuda_on_cpu::last_thread_first = backwards;
      copies_come_at_once = at_once;
      EXPECT_EQ(one, (product_by<FourTiles<precision>, a_lies, b_lies>(p))) << backwards << at_once;
    }
  cuda_on_cpu::last_thread_first = copies_come_at_once = false;
}

TEST(TileProducts, OfALayerAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {128, 256, 512}) expect_one_result<Lies::kDepthInside, Lies::kDepthInside>(depth, false);
}
TEST(TileProducts, OfTheWayBackAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {128, 256}) expect_one_result<Lies::kDepthInside, Lies::kDepthOutside>(depth, false);
}
TEST(TileProducts, OfGradientsByShardsAreTheSameInEveryShapeOfBlocks) {
  for (const int depth : {16, 32, 64}) expect_one_result<Lies::kDepthOutside, Lies::kDepthOutside>(depth, true);
}

template <Precision precision>
void expect_rounded_factors() {
  expect_one_result<Lies::kDepthInside, Lies::kDepthInside, precision>(256, false);
  expect_one_result<Lies::kDepthInside, Lies::kDepthOutside, precision>(128, false);
  expect_one_result<Lies::kDepthOutside, Lies::kDepthOutside, precision>(32, true);
}
TEST(TileProducts, OfFewerBitsAreThoseOfRoundedFactors) {
  expect_rounded_factors<Precision::kTf32>();
  expect_rounded_factors<Precision::kBf16>();
  expect_rounded_factors<Precision::kFp16>();
}

template <Precision precision>
void expect_not_a_number_stays(float bad) {
  Problem p{128, 0, std::vector<float>(128 * kSize, 1.0f), std::vector<float>(128 * kSize, 1.0f), {}};
  p.left[5 * 128 + 77] = bad;
  const std::vector<float> out = product_by<FourTiles<precision>, Lies::kDepthInside, Lies::kDepthInside>(p);
  for (int i = 0; i < kSize; ++i) EXPECT_EQ(std::isfinite(out[i * kSize + 3]), i != 5) << static_cast<int>(precision);
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
template <Lies lies>
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
  expect_no_bank_twice<Lies::kDepthInside>();
  expect_no_bank_twice<Lies::kDepthOutside>();
}

}  // namespace
}  // namespace tandem::cuda
