// kernels/gpu/gemm.h -- GEMM, C [m, n] = A [m, k] * B [k, n], by output tiles of 32 x 32: the 4 or 8 warps of a tile
// share K (split-K inside one block), K in k-tiles ("slices") of 16, operands straight from global memory into
// registers.
//
// K is split eight ways inside the block and the eight partial sums are added by pairs, of pairs, of pairs. This order
// is fixed, so an output depends on its row of A and its column of B alone: every block shape (gemm.h, gemm_staged.h,
// gemm_warpgroup.h, fused_mlp.h) gives the same bits.
//
// fp32 is 3xTF32: x = hi + lo, both tf32, and lo*hi + hi*lo + hi*hi are accumulated; about 22 bits of each operand
// count, where fp32 has 24. tf32, bf16 and fp16 round operands once and issue one mma; accumulators are fp32 always.
// Without tensor cores (before sm_80, and in plain CPU tests) a chain of fused multiply-adds over K is used instead:
// equal up to rounding, not to the bit.
#pragma once

#include <cstdint>

#include "kernels/gpu/mma.h"
#include "kernels/gpu/warp.h"

namespace tandem::cuda {

inline constexpr int kTileRows = 32, kTileColumns = 32;  // of an output tile: its extents along M and N
inline constexpr int kTileElements = kTileRows * kTileColumns;
inline constexpr int kSliceK = 16;  // extent along K of one k-tile, a slice
inline constexpr int kSplitK = 8;   // splits of K in a block

// The index of an output tile's element in shared memory. The XOR swizzle spreads the rows that eight lanes touch at
// once over all 32 banks, for float4 accesses along a row and along a column alike.
__device__ inline int swizzle(int row, int column) { return row * kTileColumns + (column ^ (row % 8 * 4)); }

// Memory layout of an operand: element (i, k) lies at [i * stride + k] (kKInner) or at [k * stride + i] (kKOuter). i is
// a row of A or a column of B. Strides and the extent of i are multiples of four; so is the extent of k where k is
// inner.
enum class Layout { kKInner, kKOuter };

// One operand of a tile. Which of its 32 rows stands at which row of an mma fragment is free, as long as the output is
// read back alike: fragment row q of lane group g is the one that lets a lane load float4s.
template <Layout layout>
struct Operand {
  const float* data;
  int64_t stride;
  int extent, k_extent;  // i and k below these are in the matrix; beyond them an element is 0

  __device__ static int row(int q, int g) { return layout == Layout::kKInner ? 8 * q + g : 4 * g + q; }
  __device__ int64_t offset(int i, int k) const { return layout == Layout::kKInner ? i * stride + k : k * stride + i; }
  __device__ float at(int i, int k) const { return i >= extent || k >= k_extent ? 0.0f : data[offset(i, k)]; }

  // A slice of the operand in registers, 4 x 4 elements to a lane: x[q][c] of lane 4 g + t is element
  // (row(q, g), first_k + 4 t + c). load() takes it from its first element's address, lane_address().
  __device__ const float* lane_address(int first_k) const {
    return data + offset(row(0, threadIdx.x % 32 / 4), first_k + threadIdx.x % 4 * 4);
  }
  __device__ void load(const float* src, float (&x)[4][4]) const {
    const int64_t step = layout == Layout::kKInner ? 8 * stride : stride;
#pragma unroll
    for (int j = 0; j < 4; ++j) put(x, j, *reinterpret_cast<const float4*>(src + j * step));
  }
  // The same with a bounds check per float4.
  __device__ void load_guarded(int first_k, float (&x)[4][4]) const {
    const int g = threadIdx.x % 32 / 4, k = first_k + threadIdx.x % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = layout == Layout::kKInner ? row(j, g) : row(0, g), k_j = layout == Layout::kKInner ? k : k + j;
      const bool inside = i < extent && k_j < k_extent;
      put(x, j, inside ? *reinterpret_cast<const float4*>(data + offset(i, k_j)) : float4{0, 0, 0, 0});
    }
  }

  // The j-th float4 that a lane loads: four k of one row (kKInner), or four rows of one k (kKOuter).
  __device__ static void put(float (&x)[4][4], int j, float4 f) {
    const float element[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) (layout == Layout::kKInner ? x[j][c] : x[c][j]) = element[c];
  }
};

#if defined(TANDEM_TENSOR_CORES)
// x = hi + lo, both tf32: the tensor core reads the upper 19 bits of a word.
struct Tf32Split {
  uint32_t hi, lo;
  __device__ explicit Tf32Split(float x) {
    hi = (bits_of(x) + 0x1000u) & 0xFFFFE000u;
    lo = bits_of(x - float_of(hi));
  }
};
#endif

// How K is split in kSplitK: split p starts `a_offset` * p and `b_offset` * p floats into the operands, at
// k = `k_offset` * p, and takes slices `k_step` apart. Either every eighth slice of one matrix, or eight matrices (one
// per shard).
struct SplitK {
  int64_t a_offset, b_offset;
  int k_offset, k_step;
};
// Split p takes slices p, p + 8, p + 16, ...
__device__ inline SplitK interleaved_split_k() { return {0, 0, kSliceK, kSplitK * kSliceK}; }

// Pointer steps: from a slice of a split to its next one, and from behind the last slice of a split to the next split.
struct SliceStrides {
  int64_t next, split;
  template <Layout layout>
  __device__ SliceStrides(const Operand<layout>& operand, const SplitK& split_k, int64_t offset, int slices)
      : next(operand.offset(0, split_k.k_step)), split(offset + operand.offset(0, split_k.k_offset) - slices * next) {}
};

// One output tile in the accumulators of one warp, as 2 x 4 mma.sync tiles of 16 x 8: lane 4 g + t owns acc[m][n][c],
// which is element (A row(2 m + c / 2, g), B row(n, 2 t + c % 2)) of the tile.
template <Layout a_layout, Layout b_layout, Precision precision>
struct WarpTile {
  float acc[2][4][4];

  // acc = A * B over one split of K, for `count` splits from `split` on, one after the other; done(i) is called when
  // acc holds the i-th. No barrier: the warp works alone.
  template <class Done>
  __device__ void multiply(Operand<a_layout> a, Operand<b_layout> b, const SplitK& split_k, int split, int count,
                           Done done) {
    a.data += split * split_k.a_offset;
    b.data += split * split_k.b_offset;
#if defined(TANDEM_TENSOR_CORES)
    if (a.extent >= kTileRows && b.extent >= kTileColumns && a.k_extent % split_k.k_step == 0) {
      multiply_full(a, b, split_k, split, count, done);
      return;
    }
#endif
    for (int i = 0; i < count; ++i) {
      clear();
      for (int first_k = (split + i) * split_k.k_offset; first_k < a.k_extent; first_k += split_k.k_step) {
#if defined(TANDEM_TENSOR_CORES)
        float x[4][4], y[4][4];
        a.load_guarded(first_k, x);
        b.load_guarded(first_k, y);
        mma_slice(x, y);
#else
        mma_slice(a, b, first_k);
#endif
      }
      done(i);
      a.data += split_k.a_offset;
      b.data += split_k.b_offset;
    }
  }

  // To shared memory: element (row, column) to dst[swizzle(row, column)].
  __device__ void store(float* dst) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int m = i / 4;
      if constexpr (b_layout == Layout::kKInner) {
        const int n = i % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(dst + swizzle(Operand<a_layout>::row(2 * m + h, g), 8 * n + 2 * t)) = {
              acc[m][n][2 * h], acc[m][n][2 * h + 1]};
      } else {
        const int c = i % 4;
        *reinterpret_cast<float4*>(dst + swizzle(Operand<a_layout>::row(2 * m + c / 2, g), 4 * (2 * t + c % 2))) = {
            acc[m][0][c], acc[m][1][c], acc[m][2][c], acc[m][3][c]};
      }
    }
  }
  // A lane's own accumulators to shared memory and back: only the same lane reads them, so no barrier is needed. Lanes
  // lie 16 bytes apart: no bank conflict. `memory` holds kTileElements floats.
  __device__ void store_own(float* memory) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float(&s)[4] = acc[i / 4][i % 4];
      reinterpret_cast<float4*>(memory)[i * 32 + threadIdx.x % 32] = {s[0], s[1], s[2], s[3]};
    }
  }
  // acc = stored + acc.
  __device__ void add_own(const float* memory) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 stored = reinterpret_cast<const float4*>(memory)[i * 32 + threadIdx.x % 32];
      float(&s)[4] = acc[i / 4][i % 4];
      s[0] = stored.x + s[0], s[1] = stored.y + s[1], s[2] = stored.z + s[2], s[3] = stored.w + s[3];
    }
  }
  // acc = left + acc.
  __device__ void add_left(const WarpTile& left) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      acc[i / 16][i / 4 % 4][i % 4] = left.acc[i / 16][i / 4 % 4][i % 4] + acc[i / 16][i / 4 % 4][i % 4];
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) acc[i / 16][i / 4 % 4][i % 4] = 0;
  }

#if defined(TANDEM_TENSOR_CORES)
  // No guards. Double-buffered: the loads of a slice are issued before the mmas of the slice before it.
  template <class Done>
  __device__ void multiply_full(const Operand<a_layout>& a, const Operand<b_layout>& b, const SplitK& split_k,
                                int split, int count, Done done) {
    const int slices = a.k_extent / split_k.k_step;
    const SliceStrides a_stride(a, split_k, split_k.a_offset, slices), b_stride(b, split_k, split_k.b_offset, slices);
    const float *a_src = a.lane_address(split * split_k.k_offset), *b_src = b.lane_address(split * split_k.k_offset);
    int loaded = 0, slices_left = slices * count;  // loaded: slices of the current split
    const auto load_slice = [&](float(&x)[4][4], float(&y)[4][4]) {
      a.load(a_src, x);
      b.load(b_src, y);
      a_src += a_stride.next;
      b_src += b_stride.next;
      if (++loaded == slices) {
        loaded = 0;
        a_src += a_stride.split;
        b_src += b_stride.split;
      }
    };
    int left_of_split = slices, finished = 0;  // slices, splits
    const auto multiply_slice = [&](const float(&x)[4][4], const float(&y)[4][4]) {
      mma_slice(x, y);
      if (--left_of_split > 0) return;
      done(finished++);
      clear();
      left_of_split = slices;
    };
    clear();
    float x[2][4][4], y[2][4][4];
    load_slice(x[0], y[0]);
    while (true) {
      if (slices_left > 1) load_slice(x[1], y[1]);
      multiply_slice(x[0], y[0]);
      if (slices_left <= 1) break;
      if (slices_left > 2) load_slice(x[0], y[0]);
      multiply_slice(x[1], y[1]);
      if (slices_left <= 2) break;
      slices_left -= 2;
    }
  }

  __device__ void mma_slice(const float (&x)[4][4], const float (&y)[4][4]) {
    if constexpr (precision == Precision::kFp32)
      mma_slice_3xtf32(x, y);
    else if constexpr (precision == Precision::kTf32)
      mma_slice_tf32(x, y);
    else
      mma_slice_16bit(x, y);
  }
  __device__ void mma_slice_tf32(const float (&x)[4][4], const float (&y)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][i / 2 % 2 + i % 2 * 2] = to_tf32(x[i / 2][s + i % 2]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t b0 = to_tf32(y[n][s]), b1 = to_tf32(y[n][s + 1]);
#pragma unroll
        for (int m = 0; m < 2; ++m) mma_tf32(acc[m][n], a[m], b0, b1);
      }
    }
  }
  __device__ void mma_slice_16bit(const float (&x)[4][4], const float (&y)[4][4]) {
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      a[i / 4][i % 4] =
          pack_16bit<precision>(x[i / 4 * 2 + i % 2][i % 4 / 2 * 2], x[i / 4 * 2 + i % 2][i % 4 / 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t b0 = pack_16bit<precision>(y[n][0], y[n][1]), b1 = pack_16bit<precision>(y[n][2], y[n][3]);
#pragma unroll
      for (int m = 0; m < 2; ++m) mma_16bit<precision>(acc[m][n], a[m], b0, b1);
    }
  }
  __device__ void mma_slice_3xtf32(const float (&x)[4][4], const float (&y)[4][4]) {
    constexpr int kColumnsAtOnce = 2;  // of four 8-wide column groups; with four, registers would spill
    // Which k stands where in an mma is free as well, if A and B agree: a lane gives k = 4 t + s and the next.
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      uint32_t hi[2][4], lo[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const Tf32Split split(x[i / 2][s + i % 2]);
        hi[i / 4][i / 2 % 2 + i % 2 * 2] = split.hi;
        lo[i / 4][i / 2 % 2 + i % 2 * 2] = split.lo;
      }
#pragma unroll
      for (int n = 0; n < 4; n += kColumnsAtOnce) {  // independent mmas between two into one accumulator
        uint32_t b_hi[kColumnsAtOnce][2], b_lo[kColumnsAtOnce][2];
#pragma unroll
        for (int i = 0; i < 2 * kColumnsAtOnce; ++i) {
          const Tf32Split split(y[n + i / 2][s + i % 2]);
          b_hi[i / 2][i % 2] = split.hi;
          b_lo[i / 2][i % 2] = split.lo;
        }
        const auto multiply = [&](const uint32_t(&a)[2][4], const uint32_t(&b)[kColumnsAtOnce][2]) {
#pragma unroll
          for (int i = 0; i < 2 * kColumnsAtOnce; ++i)
            mma_tf32(acc[i % 2][n + i / 2], a[i % 2], b[i / 2][0], b[i / 2][1]);
        };
        multiply(lo, b_hi);
        multiply(hi, b_lo);
        multiply(hi, b_hi);
      }
    }
  }
#else
  // Without tensor cores: the same elements to the same lanes, by fused multiply-adds.
  __device__ void mma_slice(const Operand<a_layout>& a, const Operand<b_layout>& b, int first_k) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int k = first_k; k < first_k + kSliceK && k < a.k_extent; ++k) {
      float x[4], y[8];
      for (int i = 0; i < 4; ++i) x[i] = rounded(precision, a.at(a.row(i, g), k));
      for (int i = 0; i < 8; ++i) y[i] = rounded(precision, b.at(b.row(i / 2, 2 * t + i % 2), k));
      for (int i = 0; i < 32; ++i) {
        float& sum = acc[i / 16][i / 4 % 4][i % 4];
        sum = fmaf(x[i / 16 * 2 + i % 4 / 2], y[i / 4 % 4 * 2 + i % 2], sum);
      }
    }
  }
#endif
};

// A block of output tiles one below the other (along M), split-K over the warps of a tile: eight warps take one split
// each (few rows: more blocks, all SMs busy) or four take two each (many rows: fewer partial sums through shared
// memory). Same bits. Both have 512 threads on an SM, at up to 128 registers a thread; tiles may reach beyond the
// matrix.
template <int kTilesOfBlock, int kWarpsOfTile, Precision precision>
struct TileBlock {
  static constexpr Precision kPrecision = precision;
  static constexpr int kTilesM = kTilesOfBlock, kTilesN = 1, kWarpsPerTile = kWarpsOfTile;
  static constexpr bool kFullTiles = false;
  static constexpr int kWarps = kWarpsPerTile * kTilesM, kThreads = 32 * kWarps, kBlocksPerSm = 512 / kThreads;
  static_assert(kWarpsPerTile == kSplitK || kWarpsPerTile == kSplitK / 2);
  struct Memory {
    alignas(16) float partials[kWarps * kTileElements];  // a tile of each warp: the sum of its splits
  };
};
template <Precision precision>
using OneTile = TileBlock<1, kSplitK, precision>;
template <Precision precision>
using TwoTiles = TileBlock<2, kSplitK / 2, precision>;

// GEMM of a block's tiles by all its threads. a_of(tile) gives the A operand of a tile, b is the B operand of the
// block; epilogue(tile)(row, column, float4) receives four outputs of a row from `column` on, once each.
template <class BlockShape, Layout a_layout, Layout b_layout, class A, class Epilogue>
requires(BlockShape::kTilesN == 1) __device__
    void gemm_block(typename BlockShape::Memory& memory, A a_of, const Operand<b_layout>& b, const SplitK& split_k,
                    Epilogue epilogue) {
  constexpr int kSplitsPerWarp = kSplitK / BlockShape::kWarpsPerTile;
  const int warp = threadIdx.x / 32;
  float* const warp_partial = memory.partials + warp * kTileElements;
  WarpTile<a_layout, b_layout, BlockShape::kPrecision> tile;
  tile.multiply(a_of(warp / BlockShape::kWarpsPerTile), b, split_k, warp % BlockShape::kWarpsPerTile * kSplitsPerWarp,
                kSplitsPerWarp, [&](int split) {
                  if (split + 1 < kSplitsPerWarp) {
                    tile.store_own(warp_partial);
                  } else {
                    if (kSplitsPerWarp > 1) {
                      tile.add_own(warp_partial);
                      __syncwarp();  // every lane has read its own before another layout overwrites it
                    }
                    tile.store(warp_partial);
                  }
                });
  __syncthreads();  // all partial tiles are in shared memory
#pragma unroll
  for (int i = 0; i < kTileElements * BlockShape::kTilesM / 4 / BlockShape::kThreads; ++i) {
    // Each thread adds up the partials of one float4 of the output at a time; 8 threads have a row of a tile.
    const int index = i * BlockShape::kThreads + static_cast<int>(threadIdx.x), t = index / (kTileElements / 4);
    const int row = index % (kTileElements / 4) * 4 / kTileColumns, column = index * 4 % kTileColumns;
    const float* const first_partial =
        memory.partials + t * BlockShape::kWarpsPerTile * kTileElements + swizzle(row, column);
    float4 sum[BlockShape::kWarpsPerTile];
#pragma unroll
    for (int w = 0; w < BlockShape::kWarpsPerTile; ++w)
      sum[w] = *reinterpret_cast<const float4*>(first_partial + w * kTileElements);
#pragma unroll
    for (int distance = 1; distance < BlockShape::kWarpsPerTile; distance *= 2)
#pragma unroll
      for (int w = 0; w < BlockShape::kWarpsPerTile; w += 2 * distance) sum[w] = add4(sum[w], sum[w + distance]);
    epilogue(t)(row, column, sum[0]);
  }
}

// Where an output tile goes: element (0, 0) of the tile is at `data`, rows are `stride` floats apart. store() takes
// four outputs of a row; callers store only where has() is true, that is inside `rows` and `columns` of the matrix.
template <class BlockShape>
struct OutputTile {
  float* data;
  int stride, rows, columns;
  __device__ bool has(int row, int column) const { return BlockShape::kFullTiles || (row < rows && column < columns); }
  __device__ void store(int row, int column, float4 y) const {
    *reinterpret_cast<float4*>(data + row * stride + column) = y;
  }
};

}  // namespace tandem::cuda
