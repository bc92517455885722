// kernels/gpu/gemm_staged.h -- GEMM by blocks of 2 x 2 tiles (64 x 64): slices of A and B are copied to shared memory
// by cp.async, three slices ahead. Half the global loads of single tiles, and no load is waited for. The same bits.
#pragma once

#include "kernels/gpu/gemm_warpgroup.h"

namespace tandem::cuda {

// One warp per tile, all eight splits. Two sums that wait for their right neighbour lie in shared memory, so that a
// thread needs at most 168 registers and three blocks fit on an SM.
template <Precision precision>
struct FourTiles {
  static constexpr Precision kPrecision = precision;
  static constexpr int kTilesM = 2, kTilesN = 2, kWarps = kTilesM * kTilesN, kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 3;
  static constexpr bool kFullTiles = true;
  static constexpr int kStages = 4, kOperandFloats = kTileRows * kSliceK, kStage = (kTilesM + kTilesN) * kOperandFloats;
  struct Staged {
    alignas(128) float operands[kStages * kStage];
    float pending[kWarps][2][kTile];  // sums of pairs, and of pairs of pairs, that wait for their right
  };
  union Memory {
    Staged staged;
    WarpgroupMemory warpgroup;
  };
};

// A slice of one tile's operand in shared memory: 16 bytes copied by each of 128 threads. K outer is swizzled, so that
// the eight lanes that shared memory serves at once read from all 32 banks.
template <Layout layout>
struct StagedOperand {
  __device__ static int64_t from(const Operand<layout>& f, int thread) {
    return layout == Layout::kKInner ? thread / 4 * f.stride + thread % 4 * 4 : thread / 8 * f.stride + thread % 8 * 4;
  }
  __device__ static int to(int thread) {
    if (layout == Layout::kKInner) return thread * 4;
    const int k = thread / 8;
    return k * kTileRows + (thread % 8 ^ k / 4 * 2) * 4;
  }
  // Where lane 4 g + t finds its j-th float4.
  __device__ static int offset(int g, int t, int j) {
    return layout == Layout::kKInner ? (8 * j + g) * kSliceK + 4 * t : (4 * t + j) * kTileRows + (g ^ 2 * t) * 4;
  }
  // As Operand::load().
  __device__ static void load(const float* staged, float (&x)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Operand<layout>::put(x, j,
                           *reinterpret_cast<const float4*>(staged + offset(threadIdx.x % 32 / 4, threadIdx.x % 4, j)));
  }
};

// As gemm_warpgroup(), with mma.sync: each warp multiplies for itself.
template <class BlockShape, Layout a_layout, Layout b_layout, class A, class To>
__device__ void gemm_staged(typename BlockShape::Staged& memory, A a_of, const Operand<b_layout>& b,
                            const SplitK& split_k, To to) {
  const int warp = threadIdx.x / 32, tile_m = warp / BlockShape::kTilesN, tile_n = warp % BlockShape::kTilesN;
  WarpTile<a_layout, b_layout, BlockShape::kPrecision> tile, left;
#if defined(TANDEM_TENSOR_CORES)
  const Operand<a_layout> a = a_of(0);
  const int slices = a.k_extent / split_k.k_step, total = kSplitK * slices;  // of a split, of all
  const SliceStrides a_stride(a, split_k, split_k.a_offset, slices), b_stride(b, split_k, split_k.b_offset, slices);
  const int thread = threadIdx.x;
  const float *a_from[BlockShape::kTilesM], *b_from[BlockShape::kTilesN];
#pragma unroll
  for (int t = 0; t < BlockShape::kTilesM; ++t) a_from[t] = a_of(t).data + StagedOperand<a_layout>::from(a, thread);
#pragma unroll
  for (int t = 0; t < BlockShape::kTilesN; ++t)
    b_from[t] = b.data + b.offset(t * kTileColumns, 0) + StagedOperand<b_layout>::from(b, thread);
  float* const a_to = memory.operands + StagedOperand<a_layout>::to(thread);
  float* const b_to =
      memory.operands + BlockShape::kTilesM * BlockShape::kOperandFloats + StagedOperand<b_layout>::to(thread);
  int copied = 0, of_split = 0, filled = 0;
  const auto copy = [&] {
    if (copied < total) {
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesM; ++t) cp_async(a_to + filled + t * BlockShape::kOperandFloats, a_from[t]);
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesN; ++t) cp_async(b_to + filled + t * BlockShape::kOperandFloats, b_from[t]);
      const bool last = ++of_split == slices;
      if (last) of_split = 0;
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesM; ++t) a_from[t] += a_stride.next + (last ? a_stride.split : 0);
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesN; ++t) b_from[t] += b_stride.next + (last ? b_stride.split : 0);
      ++copied;
    }
    cp_async_commit();  // also an empty group: the wait below counts groups
    filled = filled + BlockShape::kStage == BlockShape::kStages * BlockShape::kStage ? 0 : filled + BlockShape::kStage;
  };
  for (int i = 0; i + 1 < BlockShape::kStages; ++i) copy();
  const float* const a_staged = memory.operands + tile_m * BlockShape::kOperandFloats;
  const float* const b_staged = memory.operands + (BlockShape::kTilesM + tile_n) * BlockShape::kOperandFloats;
  int taken = 0;
  const auto add_split = [&](int) {
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      cp_async_wait<BlockShape::kStages - 2>();
      __syncthreads();  // everyone's copies of this stage have landed; the stage that copy() refills was read by all
      float x[4][4], y[4][4];
      StagedOperand<a_layout>::load(a_staged + taken, x);
      StagedOperand<b_layout>::load(b_staged + taken, y);
      copy();
      tile.mma_slice(x, y);
      taken = taken + BlockShape::kStage == BlockShape::kStages * BlockShape::kStage ? 0 : taken + BlockShape::kStage;
    }
  };
#else
  const auto add_split = [&](int split) {
    Operand<a_layout> x = a_of(tile_m);
    Operand<b_layout> y = b;
    x.data += split * split_k.a_offset;
    y.data += split * split_k.b_offset + y.offset(tile_n * kTileColumns, 0);
    for (int first = split * split_k.k_offset; first < x.k_extent; first += split_k.k_step) tile.mma_slice(x, y, first);
  };
#endif
  // Left + right: pairs, pairs of pairs, pairs of these.
  float(&pending)[2][kTile] = memory.pending[warp];
  const auto store_or_add = [&](int number, float* there) {
    if (number == 0)
      tile.store_own(there);
    else
      tile.add_own(there);
  };
#pragma unroll 1
  for (int pair = 0; pair < kSplitK / 2; ++pair) {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      if (k == 1) left = tile;
      tile.clear();
      add_split(2 * pair + k);
    }
    tile.add_left(left);
    store_or_add(pair % 2, pending[0]);
    if (pair % 2 == 1) store_or_add(pair / 2, pending[1]);
  }
  __syncwarp();  // pending[0] was read lane by lane; now it takes the tile in another order
  tile.store(pending[0]);
  __syncwarp();
  const int lane = threadIdx.x % 32, column = lane * 4 % kTileColumns;
  const auto target = to(tile_m);
#pragma unroll
  for (int i = 0; i < kTile / 4 / 32; ++i) {
    const int row = (i * 32 + lane) * 4 / kTileColumns;
    target(row, column + tile_n * kTileColumns, *reinterpret_cast<const float4*>(pending[0] + swizzle(row, column)));
  }
}

// gemm_block() where every tile is full and all splits have as many slices. b begins with the block's first column, and
// columns count from there.
template <class BlockShape, Layout a_layout, Layout b_layout, class A, class To>
requires(BlockShape::kTilesN > 1) __device__ void gemm_block(typename BlockShape::Memory& memory, A a_of,
                                                             const Operand<b_layout>& b, const SplitK& split_k, To to) {
#if defined(TANDEM_WGMMA)
  if constexpr (BlockShape::kPrecision != Precision::kTf32)
    gemm_warpgroup<BlockShape::kPrecision, a_layout, b_layout>(memory.warpgroup, a_of, b, split_k, to);
  else
#endif
    gemm_staged<BlockShape, a_layout, b_layout>(memory.staged, a_of, b, split_k, to);
}

}  // namespace tandem::cuda
