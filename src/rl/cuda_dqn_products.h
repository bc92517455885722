// rl/cuda_dqn_products.h -- tiles of matrix products: 32 x 32 numbers by one warp, eight of depth at a time. Eight
// warps share a tile's depth; their sums are added in the warps' order. So a number depends on its row and column
// alone.
//
// On tensor cores each factor is a sum of two tf32 numbers, x = high + low, and three of the four products are added:
// about 22 bits of a factor count, where fp32 has 24. Cards without them, and tests on the CPU, take chains of fused
// multiply-adds over k instead: equal up to rounding, not to the bit.
#pragma once

#include <cstdint>

#include "kernels/cuda_portable.h"

namespace tandem::cuda {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
inline constexpr int kTileRows = 32, kTileColumns = 32, kTileWarps = 8, kTileThreads = 32 * kTileWarps;
inline constexpr int kSlice = 8;                                             // of depth
inline constexpr int kSlicePitch = kSlice * (kTileRows + kTileColumns) + 8;  // rows of both factors; 8: other banks
inline constexpr int kTile = kTileRows * kTileColumns;

// Blocks for `count` things, `size` to each.
inline unsigned cuts(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

// First each warp's slice of both factors, then its sums.
struct TileMemory {
  alignas(16) float numbers[kTileWarps * kTile];
};
static_assert(kTile >= kSlicePitch);
static_assert(kTile == 4 * kTileThreads, "in hand_out() a thread takes four numbers");

// How a factor lies: element (i, k) at [i * stride + k], or at [k * stride + i]. Strides and i's count divide by four;
// so does k's count where k runs inside. In a slice it lies the same way; `outside`, i is turned so that the lanes that
// read neighbouring k at one time meet other banks.
enum class Lies { kDepthInside, kDepthOutside };
template <Lies lies, int kLength>
__device__ int slice_place(int i, int k) {
  return lies == Lies::kDepthInside ? i * kSlice + k : k * kLength + (i ^ (k / 2 * 8));
}

// What kThreads threads fetch of one factor at a time: kThreads / 4 of depth.
template <Lies lies, int kLength, int kThreads>
struct TileSide {
  static constexpr int kDepth = kThreads / 4, kFours = kLength / 16;
  const float* data;
  int64_t stride;
  int length, depth;  // valid i and k
  float4 held[kFours];

  __device__ static void place(int t, int j, int& i, int& k) {
    const int n = t + kThreads * j;
    if (lies == Lies::kDepthInside) {
      i = n / (kDepth / 4);
      k = n % (kDepth / 4) * 4;
    } else {
      i = n % (kLength / 4) * 4;
      k = n / (kLength / 4);
    }
  }
  __device__ void fetch(int t, int first_k) {
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      int i, k;
      place(t, j, i, k);
      const int64_t at = lies == Lies::kDepthInside ? i * stride + first_k + k : (first_k + k) * stride + i;
      const bool valid = i < length && first_k + k < depth;
      held[j] = valid ? *reinterpret_cast<const float4*>(data + at) : float4{0, 0, 0, 0};
    }
  }
  __device__ void put(int t, float* slices) const {
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      int i, k;
      place(t, j, i, k);
      *reinterpret_cast<float4*>(slices + k / kSlice * kSlicePitch + slice_place<lies, kLength>(i, k % kSlice)) =
          held[j];
    }
  }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TANDEM_TENSOR_CORES
// x as high + low, both tf32 (of which a tensor core takes the upper 19 bits).
struct Split {
  uint32_t high, low;
  __device__ explicit Split(float x) {
    high = (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};
// Elements (i, k) and (i, k + 1) of a slice; k is even.
template <Lies lies, int kLength>
__device__ float2 two_of_slice(const float* slice, int i, int k) {
  const float* const at = slice + slice_place<lies, kLength>(i, k);
  if (lies == Lies::kDepthInside) return *reinterpret_cast<const float2*>(at);
  return {at[0], at[kLength]};
}
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// A warp's sums: lane 4 g + t has number c of [m][n] at row 16 m + g + 8 (c / 2), column 8 n + 2 t + c % 2.
struct WarpTile {
  static constexpr int kAcross = kTileColumns / 8;
  float sums[2][kAcross][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 8 * kAcross; ++i) sums[i / 4 / kAcross][i / 4 % kAcross][i % 4] = 0;
  }

  template <Lies a_lies, Lies b_lies>
  __device__ void add_slice(const float* slice) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *const a = slice, *const b = slice + kSlice * kTileRows;
#if defined(TANDEM_TENSOR_CORES)
    // Which k stands at which place of the product does not matter: a lane takes 2 t and 2 t + 1.
    uint32_t high[2][4], low[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows g + 8 i
      const float2 two = two_of_slice<a_lies, kTileRows>(a, g + 8 * i, 2 * t);
      const Split x(two.x), y(two.y);
      high[i / 2][i % 2] = x.high;
      high[i / 2][i % 2 + 2] = y.high;
      low[i / 2][i % 2] = x.low;
      low[i / 2][i % 2 + 2] = y.low;
    }
#pragma unroll
    for (int n = 0; n < kAcross; n += 2) {  // two by two: the products in between are not waited for
      const float2 one = two_of_slice<b_lies, kTileColumns>(b, 8 * n + g, 2 * t);
      const float2 two = two_of_slice<b_lies, kTileColumns>(b, 8 * n + 8 + g, 2 * t);
      const Split y[2][2] = {{Split(one.x), Split(one.y)}, {Split(two.x), Split(two.y)}};
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply_add(sums[i % 2][n + i / 2], low[i % 2], y[i / 2][0].high, y[i / 2][1].high);
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply_add(sums[i % 2][n + i / 2], high[i % 2], y[i / 2][0].low, y[i / 2][1].low);
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply_add(sums[i % 2][n + i / 2], high[i % 2], y[i / 2][0].high, y[i / 2][1].high);
    }
#else
#pragma unroll
    for (int k = 0; k < kSlice; ++k)
#pragma unroll
      for (int i = 0; i < 8 * kAcross; ++i) {
        const int m = i / 4 / kAcross, n = i / 4 % kAcross, c = i % 4;
        const float x = a[slice_place<a_lies, kTileRows>(16 * m + g + 8 * (c / 2), k)];
        const float y = b[slice_place<b_lies, kTileColumns>(8 * n + 2 * t + c % 2, k)];
        sums[m][n][c] = fmaf(x, y, sums[m][n][c]);
      }
#endif
  }

  // take(row, column, parts) by every thread of the block: four numbers of the tile from `column` on; parts(w) are
  // those of warp w, which nobody else reads.
  template <class Take>
  __device__ void hand_out(TileMemory& memory, Take take) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto place = [](int row, int column) { return row * kTileColumns + (column ^ (row % 4 * 8)); };  // banks
    float* const own = memory.numbers + threadIdx.x / 32 * kTile;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * kAcross; ++i) {
      const int m = i / kAcross, n = i % kAcross;
      const float(&c)[4] = sums[m][n];
      *reinterpret_cast<float2*>(own + place(16 * m + g, 8 * n + 2 * t)) = {c[0], c[1]};
      *reinterpret_cast<float2*>(own + place(16 * m + g + 8, 8 * n + 2 * t)) = {c[2], c[3]};
    }
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x) * 4 / kTileColumns, column = threadIdx.x * 4 % kTileColumns;
    take(row, column,
         [&](int w) -> float4& { return *reinterpret_cast<float4*>(memory.numbers + w * kTile + place(row, column)); });
  }
};

__device__ inline float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// A tile of a product by all threads of a block: take(row, column, numbers) for the tile's numbers, four at a time.
template <Lies a_lies, Lies b_lies, class Take>
__device__ void tile_product(const float* a, int64_t a_stride, int rows, const float* b, int64_t b_stride, int columns,
                             int depth, TileMemory& memory, Take take) {
  constexpr int kStep = kTileWarps * kSlice;
  const int t = threadIdx.x;
  // Two steps are on their way while one is worked on.
  TileSide<a_lies, kTileRows, kTileThreads> left[2] = {{a, a_stride, rows, depth, {}}, {a, a_stride, rows, depth, {}}};
  TileSide<b_lies, kTileColumns, kTileThreads> right[2] = {{b, b_stride, columns, depth, {}},
                                                           {b, b_stride, columns, depth, {}}};
  WarpTile tile;
  tile.clear();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    left[i].fetch(t, i * kStep);
    right[i].fetch(t, i * kStep);
  }
  for (int first = 0; first < depth; first += 2 * kStep) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (first + i * kStep >= depth) break;
      __syncthreads();
      left[i].put(t, memory.numbers);
      right[i].put(t, memory.numbers + kSlice * kTileRows);
      __syncthreads();
      if (first + (i + 2) * kStep < depth) {
        left[i].fetch(t, first + (i + 2) * kStep);
        right[i].fetch(t, first + (i + 2) * kStep);
      }
      tile.add_slice<a_lies, b_lies>(memory.numbers + t / 32 * kSlicePitch);
    }
  }
  tile.hand_out(memory, [&](int row, int column, auto part) {
    if (row >= rows || column >= columns) return;
    float4 sum = part(0);
#pragma unroll
    for (int w = 1; w < kTileWarps; ++w) sum = plus(sum, part(w));
    take(row, column, sum);
  });
}

// A whole product by one warp of the block: both factors lie with their depth outside.
__device__ inline WarpTile warp_product(const float* a, int64_t a_stride, int rows, const float* b, int64_t b_stride,
                                        int columns, int depth, TileMemory& memory) {
  constexpr Lies kLies = Lies::kDepthOutside;
  const int lane = threadIdx.x % 32;
  float* const slice = memory.numbers + threadIdx.x / 32 * kSlicePitch;
  TileSide<kLies, kTileRows, 32> left[2] = {{a, a_stride, rows, depth, {}}, {a, a_stride, rows, depth, {}}};
  TileSide<kLies, kTileColumns, 32> right[2] = {{b, b_stride, columns, depth, {}}, {b, b_stride, columns, depth, {}}};
  WarpTile tile;
  tile.clear();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    left[i].fetch(lane, i * kSlice);
    right[i].fetch(lane, i * kSlice);
  }
  for (int first = 0; first < depth; first += 2 * kSlice) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (first + i * kSlice >= depth) break;
      __syncwarp();
      left[i].put(lane, slice);
      right[i].put(lane, slice + kSlice * kTileRows);
      __syncwarp();
      if (first + (i + 2) * kSlice < depth) {
        left[i].fetch(lane, first + (i + 2) * kSlice);
        right[i].fetch(lane, first + (i + 2) * kSlice);
      }
      tile.add_slice<kLies, kLies>(slice);
    }
  }
  return tile;
}

// The numbers on the way up a tree of shards (reduce/sum_tree.h), of which those to the left wait. What comes is
// pushed, then joined with what waits, `merges` times: left + right.
template <int kCount, int kDepth>
struct Stack {
  float waiting[kDepth][kCount] = {};
  int size = 0;

  __device__ void push(const float (&value)[kCount], int merges) {
    float now[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) now[i] = value[i];
    for (; merges > 0; --merges) {
      --size;
#pragma unroll
      for (int d = 0; d < kDepth; ++d)
        if (d == size)
#pragma unroll
          for (int i = 0; i < kCount; ++i) now[i] = waiting[d][i] + now[i];
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (d == size)
#pragma unroll
        for (int i = 0; i < kCount; ++i) waiting[d][i] = now[i];
    ++size;
  }
  __device__ const float (&top() const)[kCount] { return waiting[0]; }
};

}  // namespace tandem::cuda
