// rl/dqn/gpu/fused_mlp.h -- a net's layers one after the other over the same few rows, by one block: what lies between
// them stays in shared memory, and only weights come from outside. The same bits as tiles' (cuda_dqn_products.h).
//
// A product is turned around: weights are its left factor, of which every warp fetches its own sixteen rows some slices
// ahead, straight into registers; the block's rows, split once, are its right one. Where a number is half a word,
// weights come as they are kept for this (cuda_dqn_halves.h).
#pragma once

#include <algorithm>

#include "rl/dqn/gpu/gemm_staged.h"
#include "rl/dqn/gpu/packed_weights.h"

// Older GPUs have not the shared memory.
#if defined(TANDEM_TENSOR_CORES) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define TANDEM_FUSED_MLP
#endif

namespace tandem::cuda {

inline constexpr int kGroupRows = 64;  // of weights, that a group of four warps has

// Shared memory of a block of so many groups: the halves of its rows at the front, what a product makes of them at the
// end.
template <int kRowsOfBlock, int kGroupsOfBlock, Precision precision>
struct RowBlock {
  static constexpr int kRows = kRowsOfBlock, kGroups = kGroupsOfBlock;
  static constexpr Precision kPrecision = precision;
  static constexpr bool kSplit = precision == Precision::kFp32;              // into high and low halves
  static constexpr bool kByWords = kSplit || precision == Precision::kTf32;  // a number is a word; or half of one
  static constexpr int kThreads = 128 * kGroups, kWarps = kThreads / 32, kEach = kRows / kWarps;  // rows of a warp
  static constexpr int kUnit = kGroups * kGroupRows;                                              // widths divide by it
  static constexpr int kPlane = kPlaneOf<kRows>;
  // Four more: lanes that put what they have there meet no bank twice.
  static constexpr int kSliceWords = (kByWords ? 4 : 2) * kPlane + 4, kCopies = kSplit ? 2 : 1;
  static constexpr int kPad = 4;  // of a row of sums, for the same reason
  static constexpr int kMostWidth = 512;
  static constexpr int kAtOnce = 128;  // columns of a row that a norm takes
  // The widest layer's sums beside halves of what is half as deep; its halves beside sums of three quarters of its
  // width; and both of its own, where the last columns' sums are taken away before their halves are put there.
  static constexpr int kHalves = kMostWidth / kSlice * kSliceWords * kCopies, kSums = kRows * (kMostWidth + kPad),
                       kOfLast = kAtOnce / kSlice * kSliceWords;
  static constexpr int kWords =
      std::max({kHalves / 2 + kSums, kHalves + kRows*(kMostWidth / 4 * 3 + kPad), kHalves - kOfLast + kSums});
  static_assert(kRows % kWarps == 0 && kUnit % kAtOnce == 0);
  static_assert(kWords * sizeof(uint32_t) <= 227 * 1024, "more than a block of Hopper's can have");

  // Where the first word of four numbers stands; the others are a plane apart each.
  __device__ static constexpr int place(int row, int column) {
    return column / kSlice * kSliceWords + row / 8 * 32 + row % 8 * 4 + column / 4 % 4;
  }
  struct Memory {
    alignas(128) uint32_t words[kWords];

    // Where the low halves of rows so deep are; the high ones are at the front.
    __device__ const uint32_t* low(int depth) const { return words + depth / kSlice * kSliceWords; }
#if defined(TANDEM_FUSED_MLP)
    // Four numbers of a row, from `column` on.
    __device__ void put(int depth, int row, int column, float4 y) {
      uint32_t* const at = words + place(row, column);
      if constexpr (!kByWords) {
        at[0] = two_halves<precision>(y.x, y.y);
        at[kPlane] = two_halves<precision>(y.z, y.w);
      } else {
        const float of[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (kSplit) {
            const Split split(of[c]);
            at[c * kPlane] = split.high;
            at[c * kPlane + depth / kSlice * kSliceWords] = split.low;
          } else {
            at[c * kPlane] = tf32_of(of[c]);
          }
        }
      }
    }
#endif
    __device__ float* sums(int width, int row) {
      return reinterpret_cast<float*>(words + kWords - (kRows - row) * (width + kPad));
    }
  };

  // Whether a layer's rows and sums find room beside each other, and then the halves of what its norm makes of them.
  static constexpr bool holds(int depth, int width) {
    constexpr int kLeast = kParts * kSlice;
    const auto halves = [](int of) { return of / kSlice * kSliceWords * kCopies; };
    return (depth == kLeast || depth == 2 * kLeast || depth == 4 * kLeast) && width % kUnit == 0 &&
           width <= kMostWidth && halves(depth) + kRows * (width + kPad) <= kWords &&
           halves(width) - kOfLast + kRows * (width + kPad) <= kWords;
  }
};

// Which rows of a net's a warp has: every so manyth of its block's. Lane i knows the i-th; beyond the end its set is
// -1.
template <class Block>
struct RowsOfWarp {
  int set_there = -1, row_there = 0;
  __device__ RowsOfWarp(const DqnShape& shape, int job, int rows_of_set) {
    const int of_block = of(static_cast<int>(threadIdx.x) % 32);
    const int at = static_cast<int>(blockIdx.x) * Block::kRows + of_block;
    if (of_block >= Block::kRows || at >= shape.count * rows_of_set) return;
    const int shard = at / rows_of_set;
    set_there = job * shape.count + shard;
    row_there = at - shard * rows_of_set;
  }
  __device__ static int of(int i) { return i * Block::kWarps + static_cast<int>(threadIdx.x) / 32; }  // in the block
  __device__ int set(int i) const { return __shfl_sync(kWholeWarp, set_there, i); }
  __device__ int row(int i) const { return __shfl_sync(kWholeWarp, row_there, i); }
};

#if defined(TANDEM_FUSED_MLP)
// Not shared memory: the compiler can't see it where a pointer was read from memory.
__device__ inline void for_global_memory([[maybe_unused]] const void* pointer) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(pointer));
#endif
}

// How a warp's weights come: 16 rows of `depth` numbers each, or what is kept of them in halves.
template <class Block>
struct WeightsOf {
  using Left = OwnLeft<Layout::kKInner>;
  using Number = float;
  static constexpr int kSliceStep = kSlice;
  __device__ static const float* from(const float* weight, int depth, int features, int first_row) {
    return Left::from({weight, depth, features, depth}, first_row);
  }
  __device__ static void fetch(Left& into, const float* at, int depth) {
    into.fetch(at, depth, [](const float4* four) { return *four; });
  }
};
template <class Block>
requires(!Block::kByWords) struct WeightsOf<Block> {
  using Left = HalvesOfLane;
  using Number = HalvesOfLane;
  static constexpr int kSliceStep = 32;  // lanes
  __device__ static const HalvesOfLane* from(const HalvesOfLane* weight, int depth, int, int first_row) {
    return weight + first_row / 16 * (depth / kSlice) * kSliceStep + threadIdx.x % 32;
  }
  __device__ static void fetch(Left& into, const HalvesOfLane* at, int) { into = read_once(at); }
};

// The rows' products with `features` rows of weights; to(i) gives what is called with (row, sum) of the i-th. By all
// threads of a block; halves were shown to products, and all have come past a __syncthreads() since. Of a part there
// are kSlices slices.
template <class Block, int kSlices, class To>
__device__ void rows_product(const typename Block::Memory& memory, const typename WeightsOf<Block>::Number* weight,
                             int features, To to) {
  using Weights = WeightsOf<Block>;
  using Left = typename Weights::Left;
  using Number = typename Weights::Number;
  constexpr int kRows = Block::kRows, kPlane = Block::kPlane, kSliceWords = Block::kSliceWords, kUnit = Block::kUnit;
  constexpr int kPairs = kParts / 2, kOwn = kRows / 2, kDepth = kSlices * kParts * kSlice, kStep = Weights::kSliceStep;
  // Four chunks, a slice of both parts of a pair each, are a turn. While one is multiplied, others are on their
  // way: as many as there are registers for.
  constexpr int kTurn = 4, kAhead = Block::kGroups <= 2 || !Block::kByWords ? 4 : 2, kPairsOfTurn = kTurn / kSlices,
                kTurns = kPairs / kPairsOfTurn;
  static_assert(kTurn % kAhead == 0);
  constexpr auto chunk = [](int j) { return j / kSlices * 2 + j % kSlices * kParts; };  // its slice
  const int first_row = threadIdx.x / 32 * 16;
  const Number* from = Weights::from(weight, kDepth, features, first_row);
  Left w[kAhead][2];
  const auto fetch = [&](Left(&into)[2], const Number* at) {
    for_global_memory(at);
#pragma unroll
    for (int p = 0; p < 2; ++p) Weights::fetch(into[p], at + p * kStep, kDepth);
    __syncwarp();  // or the compiler would fetch as late as it can
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) fetch(w[i], from + chunk(i) * kStep);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, tiles = features / kUnit;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = tile * kUnit + first_row + g;
    const auto upper = to(first), lower = to(first + 8);
    float sums[2][kOwn], pairs[kOwn], fours[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) pairs[i] = fours[i] = 0;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      constexpr int kOfTurn = kPairsOfTurn * 2 * kStep, kOfTile = kUnit / 16 * (kDepth / kSlice) * kStep;
      constexpr int kToNextTile = (Block::kByWords ? kUnit * kDepth : kOfTile) - (kTurns - 1) * kOfTurn;
      const bool last = turn + 1 == kTurns, more = tile + 1 < tiles;  // after the very last one: the same again
      const Number* const then = from + (!last ? kOfTurn : more ? kToNextTile : 0);
      const int at = turn * kPairsOfTurn * 2 * kSliceWords;
      const RightFactor x_high(memory.words + at), x_low(memory.low(kDepth) + at);
#pragma unroll
      for (int j = 0; j < kTurn; ++j) {
        uint32_t high[2][2][4], low[2][2][4];  // or what there is instead of two halves
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const Left& own = w[j % kAhead][p];
          if constexpr (Block::kSplit)
            own.split(high[p], low[p]);
          else if constexpr (Block::kByWords)
            own.round(high[p]);
          else
            own.give(high[p][0]);
        }
        fetch(w[j % kAhead], (j + kAhead < kTurn ? from : then) + chunk((j + kAhead) % kTurn) * kStep);
        if (j % kSlices == 0)
#pragma unroll
          for (int i = 0; i < kOwn; ++i) sums[0][i] = sums[1][i] = 0;
        const auto multiply = [&](auto&... kept) {
          before_products(kept...);
#pragma unroll
          for (int i = 0; i < (Block::kByWords ? 4 : 2); ++i) {
            const int p = i % 2, k = i / 2, there = (chunk(j) + p) * kSliceWords + 2 * k * kPlane;
            if constexpr (!Block::kByWords) {
              begin_product<kRows, Block::kPrecision>(sums[p], high[p][0], x_high, there);
            } else {
              if (Block::kSplit) begin_product<kRows>(sums[p], high[p][k], x_low, there);
              if (Block::kSplit) begin_product<kRows>(sums[p], low[p][k], x_high, there);
              begin_product<kRows>(sums[p], high[p][k], x_high, there);
            }
          }
          end_of_products();
          wait_for_products(kept...);
        };
        if constexpr (Block::kSplit)
          multiply(sums, high, low);
        else if constexpr (Block::kByWords)
          multiply(sums, high);
        else
          multiply(sums, high[0][0], high[1][0]);
        if (j % kSlices + 1 < kSlices) continue;
        // Left + right: by pairs, of pairs, of these.
        const int pair = turn * kPairsOfTurn + j / kSlices;
        if (pair % 2 == 0) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) pairs[i] = sums[0][i] + sums[1][i];
        } else if (pair == 1) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) fours[i] = pairs[i] + (sums[0][i] + sums[1][i]);
        } else {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) fours[i] = fours[i] + (pairs[i] + (sums[0][i] + sums[1][i]));
        }
      }
      from = then;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = i / 4 * 8 + 2 * t + i % 2;
      if (i % 4 < 2)
        upper(row, fours[i]);
      else
        lower(row, fours[i]);
    }
  }
}

// The same for a depth that is known later.
template <class Block, class To>
__device__ void rows_product(const typename Block::Memory& memory, const typename WeightsOf<Block>::Number* weight,
                             int depth, int features, To to) {
  if (depth == kParts * kSlice)
    rows_product<Block, 1>(memory, weight, features, to);
  else if (depth == 2 * kParts * kSlice)
    rows_product<Block, 2>(memory, weight, features, to);
  else
    rows_product<Block, 4>(memory, weight, features, to);
}
#endif

// ---- when ----

// From few rows to many. What a block takes grows by less than its rows do, so that the smallest that find room on a
// GPU at once are the fastest; four groups of warps have registers for sixteen rows alone.
template <Precision precision>
using FewRows = RowBlock<16, 4, precision>;
template <Precision precision>
using SomeRows = RowBlock<24, 2, precision>;
template <Precision precision>
using MoreRows = RowBlock<32, 2, precision>;
template <Precision precision>
using ManyRows = RowBlock<40, 2, precision>;

// Whether a kernel's code here is more than nothing; and for Hopper's, where groups of warps multiply (unless it comes
// of PTX for any later GPU: the same bits, more slowly).
template <class Kernel>
bool has_code([[maybe_unused]] Kernel kernel, [[maybe_unused]] bool for_hopper) {
#if defined(__CUDACC__)
  const MadeFor made = made_for(reinterpret_cast<const void*>(kernel));
  return made.written >= 90 && (!for_hopper || made.gpu == 90);
#elif defined(TANDEM_FUSED_MLP)
  return true;
#else
  return false;
#endif
}

// Calls launch(block) with the blocks that suit `rows` rows of so many nets, or that were asked for; not, where layer
// by layer is faster (below `least` rows), or they can't be: fits(block) says whether a net's sizes are right,
// kernel_of(block) which kernel it is. Measured on Hopper's alone; elsewhere only who asks for it gets it. Few rows by
// blocks of many are slower than layers, so that they are left to these where blocks of few do not fit.
template <class Fits, class KernelOf, class Launch>
bool with_rows(const DqnShape& shape, int64_t nets, int rows, int64_t least, Fits fits, KernelOf kernel_of,
               Launch launch) {
  const int asked = shape.rows_of_block;
  if (asked == 0 && (shape.tiles_of_block > 0 || nets * rows < least)) return false;
  const int room = processors();
  const auto suits = [&](auto block) {
    using Block = decltype(block);
    return asked > 0 ? asked == Block::kRows : nets * cuts(rows, Block::kRows) <= room;
  };
  const auto launched = [&](auto block) {
    using Block = decltype(block);
    if (!fits(block) || !has_code(kernel_of(block), asked == 0) ||
        blocks_with_shared_memory(sizeof(typename Block::Memory)) < 1)
      return false;
    launch(block);
    return true;
  };
  bool taken = false;
  with_precision(shape, [&](auto precision) {
    constexpr Precision kPrecision = precision.value;
    if (suits(FewRows<kPrecision>{}))
      taken = launched(FewRows<kPrecision>{});
    else if (suits(SomeRows<kPrecision>{}))
      taken = launched(SomeRows<kPrecision>{});
    else if (suits(MoreRows<kPrecision>{}))
      taken = launched(MoreRows<kPrecision>{});
    else if (asked == 0 || suits(ManyRows<kPrecision>{}))
      taken = launched(ManyRows<kPrecision>{});
  });
  return taken;
}

}  // namespace tandem::cuda
