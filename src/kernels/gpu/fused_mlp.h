// kernels/gpu/fused_mlp.h -- a fused MLP: one block takes its rows through all layers. Activations go
// from layer to layer through shared memory (training also writes them to global memory, for backward). The same bits
// as layer by layer (gemm.h). fused_mlp_layers.h puts the layers together; here are a block's shared memory, its GEMM
// and the choice of a block.
//
// The GEMM is transposed, Y^T = W X^T: M are output features, N the block's batch rows. Weights are operand A, and each
// warp loads its own sixteen weight rows a few slices ahead, straight into registers; the block's rows, converted once,
// are operand B in shared memory. In bf16 and fp16 the weights come packed (packed_weights.h).
#pragma once

#include <algorithm>

#include "kernels/gpu/gemm_shape.h"
#include "kernels/gpu/packed_weights.h"

// Up to 227 kB of shared memory to a block: from Hopper on.
#if defined(TANDEM_TENSOR_CORES) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define TANDEM_FUSED_MLP
#endif

namespace tandem::cuda {

inline constexpr int kWarpgroupRows = 64;  // weight rows of one wgmma

// kRowsOfBlock rows by kWarpgroupsOfBlock warpgroups; one block on an SM. Shared memory: operand B (the rows' converted
// values) from the front, a layer's sums from the end. They may overlap in the last columns (see kWords).
template <int kRowsOfBlock, int kWarpgroupsOfBlock, Precision precision>
struct RowBlock {
  static constexpr int kRows = kRowsOfBlock, kWarpgroups = kWarpgroupsOfBlock;
  static constexpr Precision kPrecision = precision;
  static constexpr bool kHiLo = precision == Precision::kFp32;            // two words per element
  static constexpr bool k32Bit = kHiLo || precision == Precision::kTf32;  // elements are words; else half a word
  static constexpr int kThreads = 128 * kWarpgroups, kWarps = kThreads / 32, kRowsPerWarp = kRows / kWarps;
  static constexpr int kWidthStep = kWarpgroups * kWarpgroupRows;  // layer widths are multiples of it
  static constexpr int kPlane = kPlaneWords<kRows>;
  // Four words of padding per slice: the 32 lanes that store a row's float4s hit 32 different banks.
  static constexpr int kSliceWords = (k32Bit ? 4 : 2) * kPlane + 4, kCopies = kHiLo ? 2 : 1;
  static constexpr int kPad = 4;  // floats of padding per row of sums, for the same reason
  static constexpr int kMostWidth = 512;
  static constexpr int kNormColumns = 128;  // columns of a row that a norm handles at once
  // The largest of three cases: K <= 256 into a width of 512; K = 512 into a width of at most 384; K = 512 into 512,
  // where the last 128 columns' sums are read before their operand is stored over them.
  static constexpr int kOperandWords = kMostWidth / kSliceK * kSliceWords * kCopies,
                       kSumWords = kRows * (kMostWidth + kPad), kOverlap = kNormColumns / kSliceK * kSliceWords;
  static constexpr int kWords =
      std::max({kOperandWords / 2 + kSumWords, kOperandWords + kRows*(kMostWidth / 4 * 3 + kPad),
                kOperandWords - kOverlap + kSumWords});
  static_assert(kRows % kWarps == 0 && kWidthStep % kNormColumns == 0);
  static_assert(kWords * sizeof(uint32_t) <= 227 * 1024, "more shared memory than a block may have");

  // The first word of four elements; the others are a plane apart each.
  __device__ static constexpr int operand_word(int row, int column) {
    return column / kSliceK * kSliceWords + row / 8 * 32 + row % 8 * 4 + column / 4 % 4;
  }
  struct Memory {
    alignas(128) uint32_t words[kWords];

    // The lo words of an operand so deep; hi words are at the front.
    __device__ const uint32_t* lo(int depth) const { return words + depth / kSliceK * kSliceWords; }
#if defined(TANDEM_FUSED_MLP)
    // Four elements of a row, from `column` on, as operand B.
    __device__ void store_operand(int depth, int row, int column, float4 y) {
      uint32_t* const at = words + operand_word(row, column);
      if constexpr (!k32Bit) {
        at[0] = pack_16bit<precision>(y.x, y.y);
        at[kPlane] = pack_16bit<precision>(y.z, y.w);
      } else {
        const float of[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (kHiLo) {
            const Tf32Split split(of[c]);
            at[c * kPlane] = split.hi;
            at[c * kPlane + depth / kSliceK * kSliceWords] = split.lo;
          } else {
            at[c * kPlane] = to_tf32(of[c]);
          }
        }
      }
    }
#endif
    __device__ float* sums(int width, int row) {
      return reinterpret_cast<float*>(words + kWords - (kRows - row) * (width + kPad));
    }
  };

  // Whether a layer's operand and sums have room beside each other, and then the operand that its norm makes of them.
  static constexpr bool fits(int depth, int width) {
    constexpr int kLeast = kSplitK * kSliceK;
    const auto operand = [](int of) { return of / kSliceK * kSliceWords * kCopies; };
    return (depth == kLeast || depth == 2 * kLeast || depth == 4 * kLeast) && width % kWidthStep == 0 &&
           width <= kMostWidth && operand(depth) + kRows * (width + kPad) <= kWords &&
           operand(width) - kOverlap + kRows * (width + kPad) <= kWords;
  }
};

// Which rows a warp owns: every kWarps-th of its block's. Lane i knows the i-th; beyond the end its shard is -1. Rows
// are [shards][rows_of_shard], counted from first_shard.
template <class Block>
struct WarpRows {
  int lane_shard = -1, lane_row = 0;
  __device__ WarpRows(int first_shard, int shards, int rows_of_shard) {
    const int of_block = in_block(static_cast<int>(threadIdx.x) % 32);
    const int at = static_cast<int>(blockIdx.x) * Block::kRows + of_block;
    if (of_block >= Block::kRows || at >= shards * rows_of_shard) return;
    const int shard = at / rows_of_shard;
    lane_shard = first_shard + shard;
    lane_row = at - shard * rows_of_shard;
  }
  __device__ static int in_block(int i) { return i * Block::kWarps + static_cast<int>(threadIdx.x) / 32; }
  __device__ int shard(int i) const { return __shfl_sync(kFullMask, lane_shard, i); }
  __device__ int row(int i) const { return __shfl_sync(kFullMask, lane_row, i); }
};

#if defined(TANDEM_FUSED_MLP)
// The compiler cannot see the address space of a pointer that was read from memory; generic loads would be slower.
__device__ inline void assume_global([[maybe_unused]] const void* pointer) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(pointer));
#endif
}

// How a warp's weights arrive: 16 rows of `depth` floats each, or packed.
template <class Block>
struct WeightLoader {
  using Fragment = FragmentA<Layout::kKInner>;
  using Element = float;
  static constexpr int kSliceStep = kSliceK;
  __device__ static const float* from(const float* weight, int depth, int features, int first_row) {
    return Fragment::from({weight, depth, features, depth}, first_row);
  }
  __device__ static void load(Fragment& into, const float* at, int depth) {
    into.load(at, depth, [](const float4* four) { return *four; });
  }
};
template <class Block>
requires(!Block::k32Bit) struct WeightLoader<Block> {
  using Fragment = PackedFragment;
  using Element = PackedFragment;
  static constexpr int kSliceStep = 32;  // lanes
  __device__ static const PackedFragment* from(const PackedFragment* weight, int depth, int, int first_row) {
    return weight + first_row / 16 * (depth / kSliceK) * kSliceStep + threadIdx.x % 32;
  }
  __device__ static void load(Fragment& into, const PackedFragment* at, int) { into = load_no_allocate(at); }
};

// The rows times `features` weight rows, by all threads of the block. to(i) makes the epilogue that is called with
// (row, sum) for feature i. Precondition: the operand is stored, proxy_fence() and __syncthreads() are done. A split
// has kSlices slices. No barrier and no store to shared memory inside.
template <class Block, int kSlices, class To>
__device__ void rows_gemm(const typename Block::Memory& memory, const typename WeightLoader<Block>::Element* weight,
                          int features, To to) {
  using Loader = WeightLoader<Block>;
  using Fragment = typename Loader::Fragment;
  using Element = typename Loader::Element;
  constexpr int kRows = Block::kRows, kPlane = Block::kPlane, kSliceWords = Block::kSliceWords,
                kWidthStep = Block::kWidthStep;
  constexpr int kPairs = kSplitK / 2, kOwn = kRows / 2, kDepth = kSlices * kSplitK * kSliceK,
                kStep = Loader::kSliceStep;
  // A chunk is a slice of both splits of a pair; four chunks are a turn. kAhead chunks are in flight while one is
  // multiplied: as many as registers allow.
  constexpr int kTurn = 4, kAhead = Block::kWarpgroups <= 2 || !Block::k32Bit ? 4 : 2, kPairsOfTurn = kTurn / kSlices,
                kTurns = kPairs / kPairsOfTurn;
  static_assert(kTurn % kAhead == 0);
  constexpr auto chunk = [](int j) { return j / kSlices * 2 + j % kSlices * kSplitK; };  // its slice
  const int first_row = threadIdx.x / 32 * 16;
  const Element* from = Loader::from(weight, kDepth, features, first_row);
  Fragment w[kAhead][2];
  const auto load = [&](Fragment(&into)[2], const Element* at) {
    assume_global(at);
#pragma unroll
    for (int p = 0; p < 2; ++p) Loader::load(into[p], at + p * kStep, kDepth);
    __syncwarp();  // keeps the compiler from moving the loads down to their use
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(w[i], from + chunk(i) * kStep);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, tiles = features / kWidthStep;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = tile * kWidthStep + first_row + g;
    const auto upper = to(first), lower = to(first + 8);
    float acc[2][kOwn], pairs[kOwn], quads[kOwn];  // of the two splits; sums of two, of four and more
#pragma unroll
    for (int i = 0; i < kOwn; ++i) pairs[i] = quads[i] = 0;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      constexpr int kOfTurn = kPairsOfTurn * 2 * kStep, kOfTile = kWidthStep / 16 * (kDepth / kSliceK) * kStep;
      constexpr int kToNextTile = (Block::k32Bit ? kWidthStep * kDepth : kOfTile) - (kTurns - 1) * kOfTurn;
      const bool last = turn + 1 == kTurns, more = tile + 1 < tiles;  // after the very last turn: the same again
      const Element* const then = from + (!last ? kOfTurn : more ? kToNextTile : 0);
      const int at = turn * kPairsOfTurn * 2 * kSliceWords;
      const WgmmaOperandB x_hi(memory.words + at), x_lo(memory.lo(kDepth) + at);
#pragma unroll
      for (int j = 0; j < kTurn; ++j) {
        uint32_t hi[2][2][4], lo[2][2][4];  // in tf32 hi alone; in 16 bits hi[p][0]
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const Fragment& own = w[j % kAhead][p];
          if constexpr (Block::kHiLo)
            own.split(hi[p], lo[p]);
          else if constexpr (Block::k32Bit)
            own.round(hi[p]);
          else
            own.unpack(hi[p][0]);
        }
        load(w[j % kAhead], (j + kAhead < kTurn ? from : then) + chunk((j + kAhead) % kTurn) * kStep);
        if (j % kSlices == 0)
#pragma unroll
          for (int i = 0; i < kOwn; ++i) acc[0][i] = acc[1][i] = 0;
        const auto multiply = [&](auto&... kept) {
          wgmma_fence(kept...);
#pragma unroll
          for (int i = 0; i < (Block::k32Bit ? 4 : 2); ++i) {
            const int p = i % 2, k = i / 2, there = (chunk(j) + p) * kSliceWords + 2 * k * kPlane;
            if constexpr (!Block::k32Bit) {
              wgmma_issue<kRows, Block::kPrecision>(acc[p], hi[p][0], x_hi, there);
            } else {
              if (Block::kHiLo) wgmma_issue<kRows>(acc[p], hi[p][k], x_lo, there);
              if (Block::kHiLo) wgmma_issue<kRows>(acc[p], lo[p][k], x_hi, there);
              wgmma_issue<kRows>(acc[p], hi[p][k], x_hi, there);
            }
          }
          wgmma_commit();
          wgmma_wait(kept...);
        };
        if constexpr (Block::kHiLo)
          multiply(acc, hi, lo);
        else if constexpr (Block::k32Bit)
          multiply(acc, hi);
        else
          multiply(acc, hi[0][0], hi[1][0]);
        if (j % kSlices + 1 < kSlices) continue;
        // Left + right: pairs, pairs of pairs, pairs of these.
        const int pair = turn * kPairsOfTurn + j / kSlices;
        if (pair % 2 == 0) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) pairs[i] = acc[0][i] + acc[1][i];
        } else if (pair == 1) {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) quads[i] = pairs[i] + (acc[0][i] + acc[1][i]);
        } else {
#pragma unroll
          for (int i = 0; i < kOwn; ++i) quads[i] = quads[i] + (pairs[i] + (acc[0][i] + acc[1][i]));
        }
      }
      from = then;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = i / 4 * 8 + 2 * t + i % 2;
      if (i % 4 < 2)
        upper(row, quads[i]);
      else
        lower(row, quads[i]);
    }
  }
}

// The same for a depth that is known at run time.
template <class Block, class To>
__device__ void rows_gemm(const typename Block::Memory& memory, const typename WeightLoader<Block>::Element* weight,
                          int depth, int features, To to) {
  if (depth == kSplitK * kSliceK)
    rows_gemm<Block, 1>(memory, weight, features, to);
  else if (depth == 2 * kSplitK * kSliceK)
    rows_gemm<Block, 2>(memory, weight, features, to);
  else
    rows_gemm<Block, 4>(memory, weight, features, to);
}
#endif

// ---- the choice of a block ----

// A block's time grows by less than its rows, so the smallest blocks that all run at once are the fastest. Four
// warpgroups have registers for sixteen rows only.
template <Precision precision>
using Rows16 = RowBlock<16, 4, precision>;
template <Precision precision>
using Rows24 = RowBlock<24, 2, precision>;
template <Precision precision>
using Rows40 = RowBlock<40, 2, precision>;

// Whether a kernel has code here; `for_hopper`: and that for sm_90a, with wgmma. (PTX for later GPUs falls back to
// mma.sync: the same bits, slower.)
template <class Kernel>
bool has_code([[maybe_unused]] Kernel kernel, [[maybe_unused]] bool for_hopper) {
#if defined(__CUDACC__)
  const KernelArch made = arch_of(reinterpret_cast<const void*>(kernel));
  return made.ptx >= 90 && (!for_hopper || made.binary == 90);
#elif defined(TANDEM_FUSED_MLP)
  return true;
#else
  return false;
#endif
}

// Calls launch(block) with the block for `rows` rows of each of `nets` nets, or the one that was asked for. Returns
// false if the layer-by-layer path should be used: too few rows (fewer than `least`), tiles asked for by name, sizes
// that do not fit (fits(block)), or no code for this GPU. kernel_of(block) is the kernel. Thresholds were measured on
// Hopper; other GPUs take it only when asked. Few rows in blocks of many are slower than layer by layer, so if the
// chosen block does not fit, no larger one is tried.
template <class Fits, class KernelOf, class Launch>
bool with_row_block(const BlockChoice& choice, int64_t nets, int rows, int64_t least, Fits fits, KernelOf kernel_of,
                    Launch launch) {
  const int asked = choice.rows;
  if (asked == 0 && (choice.tiles > 0 || nets * rows < least)) return false;
  const int sms = sm_count();
  const auto suits = [&](auto block) {
    using Block = decltype(block);
    return asked > 0 ? asked == Block::kRows : nets * ceil_div(rows, Block::kRows) <= sms;
  };
  const auto launched = [&](auto block) {
    using Block = decltype(block);
    if (!fits(block) || !has_code(kernel_of(block), asked == 0) || blocks_per_sm(sizeof(typename Block::Memory)) < 1)
      return false;
    launch(block);
    return true;
  };
  bool taken = false;
  with_precision(choice.precision, [&](auto precision) {
    constexpr Precision kPrecision = precision.value;
    if (suits(Rows16<kPrecision>{}))
      taken = launched(Rows16<kPrecision>{});
    else if (suits(Rows24<kPrecision>{}))
      taken = launched(Rows24<kPrecision>{});
    else if (asked == 0 || suits(Rows40<kPrecision>{}))
      taken = launched(Rows40<kPrecision>{});
  });
  return taken;
}

}  // namespace tandem::cuda
