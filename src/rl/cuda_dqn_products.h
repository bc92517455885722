// rl/cuda_dqn_products.h -- tiles of matrix products: 32 x 32 numbers by one warp, sixteen of depth at a time, from
// memory straight into registers. Eight warps share a tile's depth; their sums are added in the warps' order. So a
// number depends on its row and column alone.
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
inline constexpr int kSlice = 16;  // of depth
inline constexpr int kTile = kTileRows * kTileColumns;

// Blocks for `count` things, `size` to each.
inline unsigned cuts(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

// Every warp's sums of a tile.
struct TileMemory {
  alignas(16) float numbers[kTileWarps * kTile];
};
static_assert(kTile == 4 * kTileThreads, "in hand_out() a thread takes four numbers");

// How a factor lies: element (i, k) at [i * stride + k], or at [k * stride + i]. Strides and i's count divide by four;
// so does k's count where k runs inside.
enum class Lies { kDepthInside, kDepthOutside };

// One factor of a tile. Which of its 32 rows (of the right factor: columns) stands where in a tensor core's product is
// free: number q of lane group g is the one that lets a lane fetch four neighbours at a time.
template <Lies lies>
struct Factor {
  const float* data;
  int64_t stride;
  int length, depth;  // valid i and k

  __device__ static int row(int q, int g) { return lies == Lies::kDepthInside ? 8 * q + g : 4 * g + q; }
  __device__ float at(int i, int k) const {
    if (i >= length || k >= depth) return 0;
    return lies == Lies::kDepthInside ? data[i * stride + k] : data[k * stride + i];
  }
  // Elements (i, k) to (i, k + 3), or to (i + 3, k).
  __device__ float4 four(int i, int k) const {
    if (i >= length || k >= depth) return {0, 0, 0, 0};
    return *reinterpret_cast<const float4*>(data + (lies == Lies::kDepthInside ? i * stride + k : k * stride + i));
  }
  // [q][c]: element (row(q, g), first + 4 t + c) of lane 4 g + t.
  __device__ void fetch(int first, float (&x)[4][4]) const {
    const int g = threadIdx.x % 32 / 4, k = first + threadIdx.x % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 f = lies == Lies::kDepthInside ? four(row(j, g), k) : four(row(0, g), k + j);
      const float of[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) (lies == Lies::kDepthInside ? x[j][c] : x[c][j]) = of[c];
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
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// A warp's sums: lane 4 g + t has number c of [m][n] at row a.row(2 m + c / 2, g), column b.row(n, 2 t + c % 2).
template <Lies a_lies, Lies b_lies>
struct WarpTile {
  float sums[2][4][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i / 16][i / 4 % 4][i % 4] = 0;
  }

  // The product over slices `begin`, begin + step, ... of the depth. Its warp's business alone.
  __device__ void multiply(const Factor<a_lies>& a, const Factor<b_lies>& b, int begin, int step) {
    clear();
#if defined(TANDEM_TENSOR_CORES)
    float next_x[4][4], next_y[4][4];
    a.fetch(begin, next_x);
    b.fetch(begin, next_y);
    for (int first = begin; first < a.depth; first += step) {
      float x[4][4], y[4][4];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        x[i / 4][i % 4] = next_x[i / 4][i % 4];
        y[i / 4][i % 4] = next_y[i / 4][i % 4];
      }
      if (first + step < a.depth) {  // while these are worked on
        a.fetch(first + step, next_x);
        b.fetch(first + step, next_y);
      }
#pragma unroll
      for (int s = 0; s < 4; s += 2) {  // which k stands where is free as well: a lane has 4 t + s and the next
        uint32_t high[2][4], low[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const Split split(x[i / 2][s + i % 2]);
          high[i / 4][i / 2 % 2 + i % 2 * 2] = split.high;
          low[i / 4][i / 2 % 2 + i % 2 * 2] = split.low;
        }
#pragma unroll
        for (int n = 0; n < 4; n += 2) {  // two by two: the products in between are not waited for
          const Split p[2][2] = {{Split(y[n][s]), Split(y[n][s + 1])}, {Split(y[n + 1][s]), Split(y[n + 1][s + 1])}};
#pragma unroll
          for (int i = 0; i < 4; ++i)
            multiply_add(sums[i % 2][n + i / 2], low[i % 2], p[i / 2][0].high, p[i / 2][1].high);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            multiply_add(sums[i % 2][n + i / 2], high[i % 2], p[i / 2][0].low, p[i / 2][1].low);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            multiply_add(sums[i % 2][n + i / 2], high[i % 2], p[i / 2][0].high, p[i / 2][1].high);
        }
      }
    }
#else
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int first = begin; first < a.depth; first += step)
      for (int k = first; k < first + kSlice && k < a.depth; ++k)
        for (int i = 0; i < 32; ++i) {
          float& sum = sums[i / 16][i / 4 % 4][i % 4];
          sum = fmaf(a.at(a.row(i / 16 * 2 + i % 4 / 2, g), k), b.at(b.row(i / 4 % 4, 2 * t + i % 2), k), sum);
        }
#endif
  }

  // take(row, column, parts) by every thread of the block: four numbers of the tile from `column` on; parts(w) are
  // those of warp w, which nobody else reads.
  template <class Take>
  __device__ void hand_out(TileMemory& memory, Take take) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto place = [](int row, int column) { return row * kTileColumns + (column ^ (row % 8 * 4)); };  // banks
    float* const own = memory.numbers + threadIdx.x / 32 * kTile;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int m = i / 4;
      if constexpr (b_lies == Lies::kDepthInside) {
        const int n = i % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(own + place(Factor<a_lies>::row(2 * m + h, g), 8 * n + 2 * t)) = {
              sums[m][n][2 * h], sums[m][n][2 * h + 1]};
      } else {
        const int c = i % 4;
        *reinterpret_cast<float4*>(own + place(Factor<a_lies>::row(2 * m + c / 2, g), 4 * (2 * t + c % 2))) = {
            sums[m][0][c], sums[m][1][c], sums[m][2][c], sums[m][3][c]};
      }
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
  WarpTile<a_lies, b_lies> tile;
  tile.multiply({a, a_stride, rows, depth}, {b, b_stride, columns, depth}, static_cast<int>(threadIdx.x) / 32 * kSlice,
                kTileWarps * kSlice);
  tile.hand_out(memory, [&](int row, int column, auto part) {
    if (row >= rows || column >= columns) return;
    float4 sum = part(0);
#pragma unroll
    for (int w = 1; w < kTileWarps; ++w) sum = plus(sum, part(w));
    take(row, column, sum);
  });
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
