// kernels/gpu/gemm_staged.h -- GEMM by blocks of 2 x 2 tiles (64 x 64): slices of A and B are copied to shared memory
// by cp.async, three slices ahead. Half the global loads of single tiles, and no load is waited for. The same bits.
#pragma once

#include "kernels/gpu/gemm_warpgroup.h"

namespace tandem::cuda {

// One warp per tile computes all eight splits. Two partial sums that wait for their right neighbour lie in shared
// memory, so that a thread needs at most 168 registers and three blocks fit on an SM.
template <Precision precision>
struct FourTiles {
  static constexpr Precision kPrecision = precision;
  static constexpr int kTilesM = 2, kTilesN = 2, kWarps = kTilesM * kTilesN, kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 3;
  static constexpr bool kFullTiles = true;
  // A stage holds a slice of each of the block's operands: kTilesM of A, then kTilesN of B.
  static constexpr int kStages = 4, kOperandFloats = kTileRows * kSliceK,
                       kStageFloats = (kTilesM + kTilesN) * kOperandFloats;
  struct Staged {
    alignas(128) float operands[kStages * kStageFloats];
    float pending[kWarps][2][kTileElements];  // sums of two splits, and of four, that wait for their right neighbour
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
  // The 16 bytes of this thread: their offset in the operand, and in the staged slice.
  __device__ static int64_t global_offset(const Operand<layout>& operand, int thread) {
    return layout == Layout::kKInner ? thread / 4 * operand.stride + thread % 4 * 4
                                     : thread / 8 * operand.stride + thread % 8 * 4;
  }
  __device__ static int shared_offset(int thread) {
    if (layout == Layout::kKInner) return thread * 4;
    const int k = thread / 8;
    return k * kTileRows + (thread % 8 ^ k / 4 * 2) * 4;
  }
  // The offset in the staged slice of the j-th float4 of lane 4 g + t.
  __device__ static int fragment_offset(int g, int t, int j) {
    return layout == Layout::kKInner ? (8 * j + g) * kSliceK + 4 * t : (4 * t + j) * kTileRows + (g ^ 2 * t) * 4;
  }
  // As Operand::load().
  __device__ static void load(const float* staged, float (&x)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Operand<layout>::put(
          x, j, *reinterpret_cast<const float4*>(staged + fragment_offset(threadIdx.x % 32 / 4, threadIdx.x % 4, j)));
  }
};

// As gemm_warpgroup(), with mma.sync: each warp multiplies for itself. The four stages are a ring: while a slice is
// multiplied, the copies of the next three are in flight.
//
// One function of more than 60 lines: its lambdas share pointers, counters and accumulators that must stay in
// registers.
template <class BlockShape, Layout a_layout, Layout b_layout, class A, class Epilogue>
__device__ void gemm_staged(typename BlockShape::Staged& memory, A a_of, const Operand<b_layout>& b,
                            const SplitK& split_k, Epilogue epilogue) {
  const int warp = threadIdx.x / 32, tile_m = warp / BlockShape::kTilesN, tile_n = warp % BlockShape::kTilesN;
  WarpTile<a_layout, b_layout, BlockShape::kPrecision> tile, left;
#if defined(TANDEM_TENSOR_CORES)
  const Operand<a_layout> a = a_of(0);
  const int slices = a.k_extent / split_k.k_step, all_slices = kSplitK * slices;  // of a split, of all splits
  const SliceStrides a_stride(a, split_k, split_k.a_offset, slices), b_stride(b, split_k, split_k.b_offset, slices);
  const int thread = threadIdx.x;
  const float *a_src[BlockShape::kTilesM], *b_src[BlockShape::kTilesN];
#pragma unroll
  for (int t = 0; t < BlockShape::kTilesM; ++t)
    a_src[t] = a_of(t).data + StagedOperand<a_layout>::global_offset(a, thread);
#pragma unroll
  for (int t = 0; t < BlockShape::kTilesN; ++t)
    b_src[t] = b.data + b.offset(t * kTileColumns, 0) + StagedOperand<b_layout>::global_offset(b, thread);
  float* const a_dst = memory.operands + StagedOperand<a_layout>::shared_offset(thread);
  float* const b_dst = memory.operands + BlockShape::kTilesM * BlockShape::kOperandFloats +
                       StagedOperand<b_layout>::shared_offset(thread);
  int copied = 0, copied_of_split = 0, fill_stage = 0;  // slices; offset in floats of the stage to fill next
  const auto copy_slice = [&] {
    if (copied < all_slices) {
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesM; ++t)
        cp_async(a_dst + fill_stage + t * BlockShape::kOperandFloats, a_src[t]);
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesN; ++t)
        cp_async(b_dst + fill_stage + t * BlockShape::kOperandFloats, b_src[t]);
      const bool last = ++copied_of_split == slices;
      if (last) copied_of_split = 0;
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesM; ++t) a_src[t] += a_stride.next + (last ? a_stride.split : 0);
#pragma unroll
      for (int t = 0; t < BlockShape::kTilesN; ++t) b_src[t] += b_stride.next + (last ? b_stride.split : 0);
      ++copied;
    }
    cp_async_commit();  // also an empty group: the wait below counts groups
    fill_stage = fill_stage + BlockShape::kStageFloats == BlockShape::kStages * BlockShape::kStageFloats
                     ? 0
                     : fill_stage + BlockShape::kStageFloats;
  };
  for (int i = 0; i + 1 < BlockShape::kStages; ++i) copy_slice();
  const float* const a_staged = memory.operands + tile_m * BlockShape::kOperandFloats;
  const float* const b_staged = memory.operands + (BlockShape::kTilesM + tile_n) * BlockShape::kOperandFloats;
  int read_stage = 0;  // offset in floats of the stage to multiply next
  const auto add_split = [&](int) {
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
      cp_async_wait<BlockShape::kStages - 2>();
      __syncthreads();  // all threads' copies of this stage have landed, and all have read the one refilled below
      float x[4][4], y[4][4];
      StagedOperand<a_layout>::load(a_staged + read_stage, x);
      StagedOperand<b_layout>::load(b_staged + read_stage, y);
      copy_slice();
      tile.mma_slice(x, y);
      read_stage = read_stage + BlockShape::kStageFloats == BlockShape::kStages * BlockShape::kStageFloats
                       ? 0
                       : read_stage + BlockShape::kStageFloats;
    }
  };
#else
  const auto add_split = [&](int split) {
    Operand<a_layout> x = a_of(tile_m);
    Operand<b_layout> y = b;
    x.data += split * split_k.a_offset;
    y.data += split * split_k.b_offset + y.offset(tile_n * kTileColumns, 0);
    for (int first_k = split * split_k.k_offset; first_k < x.k_extent; first_k += split_k.k_step)
      tile.mma_slice(x, y, first_k);
  };
#endif
  // The splits' sums, left + right: two, two of these, two of these. The left one waits in `pending` (is_right 0), the
  // right one is added to it.
  float(&pending)[2][kTileElements] = memory.pending[warp];
  const auto store_or_add = [&](int is_right, float* sum) {
    if (is_right == 0)
      tile.store_own(sum);
    else
      tile.add_own(sum);
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
  __syncwarp();  // every lane has read its own values of pending[0], which takes the tile in another order now
  tile.store(pending[0]);
  __syncwarp();  // the warp's tile is in shared memory, for reading row by row
  const int lane = threadIdx.x % 32, column = lane * 4 % kTileColumns;
  const auto put = epilogue(tile_m);
#pragma unroll
  for (int i = 0; i < kTileElements / 4 / 32; ++i) {
    const int row = (i * 32 + lane) * 4 / kTileColumns;
    put(row, column + tile_n * kTileColumns, *reinterpret_cast<const float4*>(pending[0] + swizzle(row, column)));
  }
}

// gemm_block() of 2 x 2 tiles: every tile is full and all splits have the same number of slices. b begins with the
// block's first column, and columns count from there.
template <class BlockShape, Layout a_layout, Layout b_layout, class A, class Epilogue>
requires(BlockShape::kTilesN > 1) __device__
    void gemm_block(typename BlockShape::Memory& memory, A a_of, const Operand<b_layout>& b, const SplitK& split_k,
                    Epilogue epilogue) {
#if defined(TANDEM_WGMMA)
  if constexpr (BlockShape::kPrecision != Precision::kTf32)
    gemm_warpgroup<BlockShape::kPrecision, a_layout, b_layout>(memory.warpgroup, a_of, b, split_k, epilogue);
  else
#endif
    gemm_staged<BlockShape, a_layout, b_layout>(memory.staged, a_of, b, split_k, epilogue);
}

}  // namespace tandem::cuda
