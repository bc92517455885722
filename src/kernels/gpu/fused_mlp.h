// kernels/gpu/fused_mlp.h -- a fused MLP: one block takes its rows through all layers. Activations go from layer to
// layer through shared memory (training also writes them to global memory, for backward). The same bits as layer by
// layer (gemm.h). fused_mlp_layers.h puts the layers together; here are a block's shared memory, its GEMM and the
// choice of a block.
//
// The GEMM is transposed, Y^T = W X^T: M are the layer's outputs (features), N the block's batch rows, K the layer's
// inputs. Weights are operand A, and each warp loads its own sixteen weight rows a few slices ahead, straight into
// registers; the block's rows, converted once, are operand B in shared memory. In bf16 and fp16 the weights come packed
// (packed_weights.h).
#pragma once

#include <algorithm>

#include "kernels/gpu/gemm_shape.h"
#include "kernels/gpu/packed_weights.h"

// Up to 227 kB of shared memory to a block: from Hopper on.
#if defined(TANDEM_TENSOR_CORES) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define TANDEM_FUSED_MLP
#endif

namespace tandem::cuda {

inline constexpr int kWarpgroupM = 64;  // weight rows (output features) of one wgmma

// kRowsOfBlock rows by kWarpgroupsOfBlock warpgroups; one block on an SM. Shared memory: operand B (the rows' converted
// values) from the front, the GEMM's output (fp32, [row][feature]) from the end. They may overlap in the last columns
// (see kWords).
template <int kRowsOfBlock, int kWarpgroupsOfBlock, Precision precision>
struct RowBlock {
  static constexpr int kRows = kRowsOfBlock, kWarpgroups = kWarpgroupsOfBlock;
  static constexpr Precision kPrecision = precision;
  static constexpr bool kHiLo = precision == Precision::kFp32;            // two words per element
  static constexpr bool k32Bit = kHiLo || precision == Precision::kTf32;  // elements are words; else half a word
  static constexpr int kThreads = 128 * kWarpgroups, kWarps = kThreads / 32, kRowsPerWarp = kRows / kWarps;
  static constexpr int kWidthStep = kWarpgroups * kWarpgroupM;  // layer widths are multiples of it
  static constexpr int kPlane = kPlaneWords<kRows>;
  // Words of one slice of operand B. Four of padding: the 32 lanes that store a row's float4s hit 32 different banks.
  static constexpr int kSliceWords = (k32Bit ? 4 : 2) * kPlane + 4;
  static constexpr int kParts = kHiLo ? 2 : 1;  // of the operand: the hi words of all slices, then the lo words
  static constexpr int kPad = 4;                // floats of padding per row of the output, for the same reason
  static constexpr int kMaxWidth = 512;
  static constexpr int kNormColumns = 128;  // columns of a row that a norm handles at once
  // The largest of three cases: k <= 256 with 512 outputs; k = 512 with at most 384 outputs; k = 512 with 512 outputs,
  // where the last 128 columns of the output are read before the next operand is stored over them.
  static constexpr int kOperandWords = kMaxWidth / kSliceK * kSliceWords * kParts,
                       kOutputWords = kRows * (kMaxWidth + kPad), kOverlap = kNormColumns / kSliceK * kSliceWords;
  static constexpr int kWords =
      std::max({kOperandWords / 2 + kOutputWords, kOperandWords + kRows*(kMaxWidth / 4 * 3 + kPad),
                kOperandWords - kOverlap + kOutputWords});
  static_assert(kRows % kWarps == 0 && kWidthStep % kNormColumns == 0);
  static_assert(kWords * sizeof(uint32_t) <= 227 * 1024, "more shared memory than a block may have");

  // The first word of four elements of operand B, from `column` on; the others are a plane apart each.
  __device__ static constexpr int operand_word(int row, int column) {
    return column / kSliceK * kSliceWords + row / 8 * 32 + row % 8 * 4 + column / 4 % 4;
  }
  struct Memory {
    alignas(128) uint32_t words[kWords];

    // The lo words of an operand with extent k; its hi words are at the front.
    __device__ const uint32_t* lo(int k) const { return words + k / kSliceK * kSliceWords; }
#if defined(TANDEM_FUSED_MLP)
    // Four elements of a row, from `column` on, as operand B with extent k.
    __device__ void store_operand(int k, int row, int column, float4 y) {
      uint32_t* const dst = words + operand_word(row, column);
      if constexpr (!k32Bit) {
        dst[0] = pack_16bit<precision>(y.x, y.y);
        dst[kPlane] = pack_16bit<precision>(y.z, y.w);
      } else {
        const float element[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (kHiLo) {
            const Tf32Split split(element[c]);
            dst[c * kPlane] = split.hi;
            dst[c * kPlane + k / kSliceK * kSliceWords] = split.lo;
          } else {
            dst[c * kPlane] = to_tf32(element[c]);
          }
        }
      }
    }
#endif
    // A row of the GEMM's output, `width` features.
    __device__ float* output(int width, int row) {
      return reinterpret_cast<float*>(words + kWords - (kRows - row) * (width + kPad));
    }
  };

  // Whether a layer's operand (k inputs) and output (`width` features) have room beside each other, and then the
  // operand that its norm makes of the output.
  static constexpr bool fits(int k, int width) {
    constexpr int kMinK = kSplitK * kSliceK;  // one slice to a split
    const auto operand_words = [](int extent) { return extent / kSliceK * kSliceWords * kParts; };
    return (k == kMinK || k == 2 * kMinK || k == 4 * kMinK) && width % kWidthStep == 0 && width <= kMaxWidth &&
           operand_words(k) + kRows * (width + kPad) <= kWords &&
           operand_words(width) - kOverlap + kRows * (width + kPad) <= kWords;
  }
};

// Which rows a warp owns: every kWarps-th of its block's. Lane i holds shard and row of the warp's i-th, and shard -1
// for a row beyond the last one. Rows are [shards][rows_per_shard]; shards count from first_shard; blockIdx.x is the
// block of rows.
template <class Block>
struct WarpRows {
  int lane_shard = -1, lane_row = 0;
  __device__ WarpRows(int first_shard, int shards, int rows_per_shard) {
    const int block_row = row_in_block(static_cast<int>(threadIdx.x) % 32);
    const int index = static_cast<int>(blockIdx.x) * Block::kRows + block_row;
    if (block_row >= Block::kRows || index >= shards * rows_per_shard) return;
    const int shard = index / rows_per_shard;
    lane_shard = first_shard + shard;
    lane_row = index - shard * rows_per_shard;
  }
  // The index in the block of the warp's i-th row; its shard and its row of the shard.
  __device__ static int row_in_block(int i) { return i * Block::kWarps + static_cast<int>(threadIdx.x) / 32; }
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

// How a warp's weights arrive: 16 rows of k floats each, or packed. lane_address(): of this lane's first element or
// fragment, where the warp's rows begin at first_row; kSliceStep: from a slice to the next, in Elements.
template <class Block>
struct WeightLoader {
  using Fragment = FragmentA<Layout::kKInner>;
  using Element = float;
  static constexpr int kSliceStep = kSliceK;
  __device__ static const float* lane_address(const float* weight, int k, int features, int first_row) {
    return Fragment::lane_address({weight, k, features, k}, first_row);
  }
  __device__ static void load(Fragment& dst, const float* src, int k) {
    dst.load(src, k, [](const float4* f) { return *f; });
  }
};
template <class Block>
requires(!Block::k32Bit) struct WeightLoader<Block> {
  using Fragment = PackedFragment;
  using Element = PackedFragment;
  static constexpr int kSliceStep = 32;  // lanes
  __device__ static const PackedFragment* lane_address(const PackedFragment* weight, int k, int, int first_row) {
    return weight + first_row / 16 * (k / kSliceK) * kSliceStep + threadIdx.x % 32;
  }
  __device__ static void load(Fragment& dst, const PackedFragment* src, int) { dst = load_no_allocate(src); }
};

// The block's rows times `features` weight rows, by all threads of the block: warp w computes features 16 w to 16 w +
// 15 of every kWidthStep. epilogue(i) makes the function that is called with (row, sum) for feature i. Precondition:
// the operand is stored, proxy_fence() and __syncthreads() are done. A split of K has kSlices slices. No barrier and no
// store to shared memory inside.
//
// One function of more than 60 lines: all its arrays must stay in registers, and the order of loads, conversions and
// wgmmas is what makes it fast.
template <class Block, int kSlices, class Epilogue>
__device__ void rows_gemm(const typename Block::Memory& memory, const typename WeightLoader<Block>::Element* weight,
                          int features, Epilogue epilogue) {
  using Loader = WeightLoader<Block>;
  using Fragment = typename Loader::Fragment;
  using Element = typename Loader::Element;
  constexpr int kRows = Block::kRows, kPlane = Block::kPlane, kSliceWords = Block::kSliceWords,
                kWidthStep = Block::kWidthStep;
  constexpr int kPairs = kSplitK / 2, kAccs = kRows / 2, kExtentK = kSlices * kSplitK * kSliceK,
                kStep = Loader::kSliceStep;
  // kAccs: accumulators of a thread for one split. A chunk is a slice of both splits of a pair; four chunks are a turn.
  // kAhead chunks are in flight while one is multiplied: as many as registers allow.
  constexpr int kTurn = 4, kAhead = Block::kWarpgroups <= 2 || !Block::k32Bit ? 4 : 2, kPairsPerTurn = kTurn / kSlices,
                kTurns = kPairs / kPairsPerTurn;
  static_assert(kTurn % kAhead == 0);
  constexpr auto chunk = [](int j) { return j / kSlices * 2 + j % kSlices * kSplitK; };  // its slice
  const int first_row = threadIdx.x / 32 * 16;
  const Element* src = Loader::lane_address(weight, kExtentK, features, first_row);  // of this turn
  Fragment w[kAhead][2];
  const auto load = [&](Fragment(&dst)[2], const Element* chunk_src) {
    assume_global(chunk_src);
#pragma unroll
    for (int p = 0; p < 2; ++p) Loader::load(dst[p], chunk_src + p * kStep, kExtentK);
    __syncwarp();  // keeps the compiler from moving the loads down to their use
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(w[i], src + chunk(i) * kStep);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, tiles = features / kWidthStep;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = tile * kWidthStep + first_row + g;
    const auto upper = epilogue(first), lower = epilogue(first + 8);
    float acc[2][kAccs], pairs[kAccs], total[kAccs];  // sums of K: each split of a pair; two splits; four and more
#pragma unroll
    for (int i = 0; i < kAccs; ++i) pairs[i] = total[i] = 0;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      constexpr int kTurnStep = kPairsPerTurn * 2 * kStep,
                    kPackedTileStep = kWidthStep / 16 * (kExtentK / kSliceK) * kStep;
      constexpr int kNextTileStep =
          (Block::k32Bit ? kWidthStep * kExtentK : kPackedTileStep) - (kTurns - 1) * kTurnStep;
      const bool last = turn + 1 == kTurns, more_tiles = tile + 1 < tiles;  // after the very last turn: the same again
      const Element* const next_src = src + (!last ? kTurnStep : more_tiles ? kNextTileStep : 0);
      const int first_word = turn * kPairsPerTurn * 2 * kSliceWords;
      const WgmmaOperandB x_hi(memory.words + first_word), x_lo(memory.lo(kExtentK) + first_word);
#pragma unroll
      for (int j = 0; j < kTurn; ++j) {
        uint32_t hi[2][2][4], lo[2][2][4];  // in tf32 hi alone; in 16 bits hi[p][0]
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const Fragment& weights = w[j % kAhead][p];
          if constexpr (Block::kHiLo)
            weights.split(hi[p], lo[p]);
          else if constexpr (Block::k32Bit)
            weights.round(hi[p]);
          else
            weights.unpack(hi[p][0]);
        }
        load(w[j % kAhead], (j + kAhead < kTurn ? src : next_src) + chunk((j + kAhead) % kTurn) * kStep);
        if (j % kSlices == 0)
#pragma unroll
          for (int i = 0; i < kAccs; ++i) acc[0][i] = acc[1][i] = 0;
        const auto multiply = [&](auto&... kept) {
          wgmma_fence(kept...);
#pragma unroll
          for (int i = 0; i < (Block::k32Bit ? 4 : 2); ++i) {
            const int p = i % 2, k = i / 2, word = (chunk(j) + p) * kSliceWords + 2 * k * kPlane;
            if constexpr (!Block::k32Bit) {
              wgmma_issue<kRows, Block::kPrecision>(acc[p], hi[p][0], x_hi, word);
            } else {
              if (Block::kHiLo) wgmma_issue<kRows>(acc[p], hi[p][k], x_lo, word);
              if (Block::kHiLo) wgmma_issue<kRows>(acc[p], lo[p][k], x_hi, word);
              wgmma_issue<kRows>(acc[p], hi[p][k], x_hi, word);
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
        // The splits' sums, left + right: two, two of these, two of these.
        const int pair = turn * kPairsPerTurn + j / kSlices;
        if (pair % 2 == 0) {
#pragma unroll
          for (int i = 0; i < kAccs; ++i) pairs[i] = acc[0][i] + acc[1][i];
        } else if (pair == 1) {
#pragma unroll
          for (int i = 0; i < kAccs; ++i) total[i] = pairs[i] + (acc[0][i] + acc[1][i]);
        } else {
#pragma unroll
          for (int i = 0; i < kAccs; ++i) total[i] = total[i] + (pairs[i] + (acc[0][i] + acc[1][i]));
        }
      }
      src = next_src;
    }
#pragma unroll
    for (int i = 0; i < kAccs; ++i) {
      const int row = i / 4 * 8 + 2 * t + i % 2;
      if (i % 4 < 2)
        upper(row, total[i]);
      else
        lower(row, total[i]);
    }
  }
}

// The same for an extent k that is known at run time.
template <class Block, class Epilogue>
__device__ void rows_gemm(const typename Block::Memory& memory, const typename WeightLoader<Block>::Element* weight,
                          int k, int features, Epilogue epilogue) {
  if (k == kSplitK * kSliceK)
    rows_gemm<Block, 1>(memory, weight, features, epilogue);
  else if (k == 2 * kSplitK * kSliceK)
    rows_gemm<Block, 2>(memory, weight, features, epilogue);
  else
    rows_gemm<Block, 4>(memory, weight, features, epilogue);
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
// false if the layer-by-layer path should be used: too few rows (fewer than `min_rows`), tiles asked for by name, sizes
// that do not fit (fits(block)), or no code for this GPU. kernel_of(block) is the kernel. Thresholds were measured on
// Hopper; other GPUs take it only when asked. Few rows in blocks of many are slower than layer by layer, so if the
// chosen block does not fit, no larger one is tried.
template <class Fits, class KernelOf, class Launch>
bool with_row_block(const BlockChoice& choice, int64_t nets, int rows, int64_t min_rows, Fits fits, KernelOf kernel_of,
                    Launch launch) {
  const int asked = choice.rows;
  if (asked == 0 && (choice.tiles > 0 || nets * rows < min_rows)) return false;
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
