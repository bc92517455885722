// rl/dqn/gpu/gemm_tiles.h -- tiles of matrix products: 32 x 32 numbers by one warp, sixteen of depth at a time, from
// memory straight into registers. Several warps share a tile's depth, in an order of its own: a number depends on its
// row and column alone.
//
// On tensor cores each factor is a sum of two tf32 numbers, x = high + low, and three of the four products are added:
// about 22 bits of a factor count, where fp32 has 24. In tf32, bf16 and fp16 factors are rounded to it and one product
// is made; sums are fp32 in all of them. GPUs without tensor cores, and tests on the CPU, take chains of fused
// multiply-adds over k instead: equal up to rounding, not to the bit.
#pragma once

#include <cstdint>

#include "kernels/gpu/mma.h"

namespace tandem::cuda {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
inline constexpr int kTileRows = 32, kTileColumns = 32;
inline constexpr int kSlice = 16;  // of depth
inline constexpr int kTile = kTileRows * kTileColumns;

// Blocks for `count` things, `size` to each.
inline unsigned cuts(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

inline bool divides(int size, int64_t count) { return count % size == 0; }

// Where a tile's number stands in shared memory: turned, for its banks.
__device__ inline int place(int row, int column) { return row * kTileColumns + (column ^ (row % 8 * 4)); }
__device__ inline float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// How a factor lies: element (i, k) at [i * stride + k], or at [k * stride + i]. Strides and i's count divide by four;
// so does k's count where k runs inside.
enum class Layout { kKInner, kKOuter };

// One factor of a tile. Which of its 32 rows (of the right factor: columns) stands where in a tensor core's product is
// free: number q of lane group g is the one that lets a lane fetch four neighbours at a time.
template <Layout lies>
struct Factor {
  const float* data;
  int64_t stride;
  int length, depth;  // valid i and k

  __device__ static int row(int q, int g) { return lies == Layout::kKInner ? 8 * q + g : 4 * g + q; }
  __device__ int64_t place_of(int i, int k) const { return lies == Layout::kKInner ? i * stride + k : k * stride + i; }
  __device__ float at(int i, int k) const { return i >= length || k >= depth ? 0.0f : data[place_of(i, k)]; }

  // [q][c]: element (row(q, g), first + 4 t + c) of lane 4 g + t. `from` is where the lane's first one lies.
  __device__ const float* from(int first) const {
    return data + place_of(row(0, threadIdx.x % 32 / 4), first + threadIdx.x % 4 * 4);
  }
  __device__ void fetch(const float* from, float (&x)[4][4]) const {
    const int64_t next = lies == Layout::kKInner ? 8 * stride : stride;
#pragma unroll
    for (int j = 0; j < 4; ++j) put(x, j, *reinterpret_cast<const float4*>(from + j * next));
  }
  // The same where part of it may be beyond the end.
  __device__ void fetch_valid(int first, float (&x)[4][4]) const {
    const int g = threadIdx.x % 32 / 4, k = first + threadIdx.x % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = lies == Layout::kKInner ? row(j, g) : row(0, g), depth_of = lies == Layout::kKInner ? k : k + j;
      const bool there = i < length && depth_of < depth;
      put(x, j, there ? *reinterpret_cast<const float4*>(data + place_of(i, depth_of)) : float4{0, 0, 0, 0});
    }
  }

  __device__ static void put(float (&x)[4][4], int j, float4 f) {
    const float of[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) (lies == Layout::kKInner ? x[j][c] : x[c][j]) = of[c];
  }
};

#if defined(TANDEM_TENSOR_CORES)
// x as high + low, both tf32 (of which a tensor core takes the upper 19 bits).
struct Split {
  uint32_t high, low;
  __device__ explicit Split(float x) {
    high = (bits_of(x) + 0x1000u) & 0xFFFFE000u;
    low = bits_of(x - float_of(high));
  }
};
#endif

// The parts that make up a tile's numbers: part p begins at `shift` * p of both factors' numbers and at depth k * p,
// and has the slices of depth from there on, `step` apart.
inline constexpr int kParts = 8;
struct Parts {
  int64_t a_shift, b_shift;
  int k_shift, step;
};

// How far it is in a factor's numbers from one slice of a part to its next, and from behind a part's last one to the
// first of the next part.
struct Strides {
  int64_t next, part;
  template <Layout lies>
  __device__ Strides(const Factor<lies>& factor, const Parts& parts, int64_t shift, int slices)
      : next(factor.place_of(0, parts.step)), part(shift + factor.place_of(0, parts.k_shift) - slices * next) {}
};

// A warp's sums: lane 4 g + t has number c of [m][n] at row a.row(2 m + c / 2, g), column b.row(n, 2 t + c % 2).
template <Layout a_lies, Layout b_lies, Precision precision>
struct WarpTile {
  float sums[2][4][4];

  // `count` parts from `part` on, one after the other; done(i) finds each one's sums. Its warp's business alone.
  template <class Done>
  __device__ void multiply(Factor<a_lies> a, Factor<b_lies> b, const Parts& parts, int part, int count, Done done) {
    a.data += part * parts.a_shift;
    b.data += part * parts.b_shift;
#if defined(TANDEM_TENSOR_CORES)
    if (a.length >= kTileRows && b.length >= kTileColumns && a.depth % parts.step == 0) {
      multiply_whole(a, b, parts, part, count, done);
      return;
    }
#endif
    for (int i = 0; i < count; ++i) {
      clear();
      for (int first = (part + i) * parts.k_shift; first < a.depth; first += parts.step) {
#if defined(TANDEM_TENSOR_CORES)
        float x[4][4], y[4][4];
        a.fetch_valid(first, x);
        b.fetch_valid(first, y);
        add_products(x, y);
#else
        add_products(a, b, first);
#endif
      }
      done(i);
      a.data += parts.a_shift;
      b.data += parts.b_shift;
    }
  }

  // to[place of a number] = its sum.
  __device__ void put(float* to) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int m = i / 4;
      if constexpr (b_lies == Layout::kKInner) {
        const int n = i % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(to + place(Factor<a_lies>::row(2 * m + h, g), 8 * n + 2 * t)) = {
              sums[m][n][2 * h], sums[m][n][2 * h + 1]};
      } else {
        const int c = i % 4;
        *reinterpret_cast<float4*>(to + place(Factor<a_lies>::row(2 * m + c / 2, g), 4 * (2 * t + c % 2))) = {
            sums[m][0][c], sums[m][1][c], sums[m][2][c], sums[m][3][c]};
      }
    }
  }
  // A lane's own numbers, for itself to take again; `memory` has a tile's size.
  __device__ void keep(float* memory) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float(&s)[4] = sums[i / 4][i % 4];
      reinterpret_cast<float4*>(memory)[i * 32 + threadIdx.x % 32] = {s[0], s[1], s[2], s[3]};
    }
  }
  __device__ void add_kept(const float* memory) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 kept = reinterpret_cast<const float4*>(memory)[i * 32 + threadIdx.x % 32];
      float(&s)[4] = sums[i / 4][i % 4];
      s[0] = kept.x + s[0], s[1] = kept.y + s[1], s[2] = kept.z + s[2], s[3] = kept.w + s[3];
    }
  }

  __device__ void add_to(const WarpTile& left) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      sums[i / 16][i / 4 % 4][i % 4] = left.sums[i / 16][i / 4 % 4][i % 4] + sums[i / 16][i / 4 % 4][i % 4];
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i / 16][i / 4 % 4][i % 4] = 0;
  }

#if defined(TANDEM_TENSOR_CORES)
  // No number is beyond an end. Slices are fetched one ahead, into two buffers in turn.
  template <class Done>
  __device__ void multiply_whole(const Factor<a_lies>& a, const Factor<b_lies>& b, const Parts& parts, int part,
                                 int count, Done done) {
    const int slices = a.depth / parts.step;
    const Strides a_stride(a, parts, parts.a_shift, slices), b_stride(b, parts, parts.b_shift, slices);
    const float *x_from = a.from(part * parts.k_shift), *y_from = b.from(part * parts.k_shift);
    int fetched = 0, left = slices * count;
    const auto fetch = [&](float(&x)[4][4], float(&y)[4][4]) {
      a.fetch(x_from, x);
      b.fetch(y_from, y);
      x_from += a_stride.next;
      y_from += b_stride.next;
      if (++fetched == slices) {
        fetched = 0;
        x_from += a_stride.part;
        y_from += b_stride.part;
      }
    };
    int of_part = slices, at = 0;
    const auto work = [&](const float(&x)[4][4], const float(&y)[4][4]) {
      add_products(x, y);
      if (--of_part > 0) return;
      done(at++);
      clear();
      of_part = slices;
    };
    clear();
    float x[2][4][4], y[2][4][4];
    fetch(x[0], y[0]);
    while (true) {
      if (left > 1) fetch(x[1], y[1]);
      work(x[0], y[0]);
      if (left <= 1) break;
      if (left > 2) fetch(x[0], y[0]);
      work(x[1], y[1]);
      if (left <= 2) break;
      left -= 2;
    }
  }

  __device__ void add_products(const float (&x)[4][4], const float (&y)[4][4]) {
    if constexpr (precision == Precision::kFp32)
      add_split(x, y);
    else if constexpr (precision == Precision::kTf32)
      add_tf32(x, y);
    else
      add_halves(x, y);
  }
  __device__ void add_tf32(const float (&x)[4][4], const float (&y)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][i / 2 % 2 + i % 2 * 2] = tf32_of(x[i / 2][s + i % 2]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t b0 = tf32_of(y[n][s]), b1 = tf32_of(y[n][s + 1]);
#pragma unroll
        for (int m = 0; m < 2; ++m) multiply_add(sums[m][n], a[m], b0, b1);
      }
    }
  }
  __device__ void add_halves(const float (&x)[4][4], const float (&y)[4][4]) {
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      a[i / 4][i % 4] =
          two_halves<precision>(x[i / 4 * 2 + i % 2][i % 4 / 2 * 2], x[i / 4 * 2 + i % 2][i % 4 / 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t b0 = two_halves<precision>(y[n][0], y[n][1]), b1 = two_halves<precision>(y[n][2], y[n][3]);
#pragma unroll
      for (int m = 0; m < 2; ++m) multiply_add_halves<precision>(sums[m][n], a[m], b0, b1);
    }
  }
  __device__ void add_split(const float (&x)[4][4], const float (&y)[4][4]) {
    constexpr int kAtOnce = 2;  // with four, registers would not do
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
      for (int n = 0; n < 4; n += kAtOnce) {  // so many: the products in between are not waited for
        uint32_t p_high[kAtOnce][2], p_low[kAtOnce][2];
#pragma unroll
        for (int i = 0; i < 2 * kAtOnce; ++i) {
          const Split split(y[n + i / 2][s + i % 2]);
          p_high[i / 2][i % 2] = split.high;
          p_low[i / 2][i % 2] = split.low;
        }
        const auto multiply = [&](const uint32_t(&a)[2][4], const uint32_t(&b)[kAtOnce][2]) {
#pragma unroll
          for (int i = 0; i < 2 * kAtOnce; ++i)
            multiply_add(sums[i % 2][n + i / 2], a[i % 2], b[i / 2][0], b[i / 2][1]);
        };
        multiply(low, p_high);
        multiply(high, p_low);
        multiply(high, p_high);
      }
    }
  }
#else
  __device__ void add_products(const Factor<a_lies>& a, const Factor<b_lies>& b, int first) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int k = first; k < first + kSlice && k < a.depth; ++k) {
      float x[4], y[8];
      for (int i = 0; i < 4; ++i) x[i] = rounded(precision, a.at(a.row(i, g), k));
      for (int i = 0; i < 8; ++i) y[i] = rounded(precision, b.at(b.row(i / 2, 2 * t + i % 2), k));
      for (int i = 0; i < 32; ++i) {
        float& sum = sums[i / 16][i / 4 % 4][i % 4];
        sum = fmaf(x[i / 16 * 2 + i % 4 / 2], y[i / 4 % 4 * 2 + i % 2], sum);
      }
    }
  }
#endif
};

// The tiles of a block, one below the other. A number is the sum of its eight parts, by pairs, of pairs, of pairs. One
// warp or half as many make them, to the same bits: the first reach the whole GPU where there are few rows, the others
// have less to do beside their products.
template <int kTilesOfBlock, int kWarpsOfTile, Precision precision>
struct Tiles {
  static constexpr Precision kPrecision = precision;
  static constexpr int kDown = kTilesOfBlock, kAcross = 1, kOfEach = kWarpsOfTile;
  static constexpr bool kWhole = false;  // tiles may reach beyond an end
  static constexpr int kWarps = kOfEach * kDown, kThreads = 32 * kWarps, kBlocks = 512 / kThreads;  // of a processor
  static_assert(kOfEach == kParts || kOfEach == kParts / 2);
  struct Memory {
    alignas(16) float numbers[kWarps * kTile];
  };
};
template <Precision precision>
using OneTile = Tiles<1, kParts, precision>;
template <Precision precision>
using TwoTiles = Tiles<2, kParts / 2, precision>;

// Products of tiles by all threads of a block. a(tile) and b have the factors; to(tile)(row, column, numbers) gets four
// numbers from `column` on.
template <class Shape, Layout a_lies, Layout b_lies, class A, class To>
requires(Shape::kAcross == 1) __device__
    void tile_products(typename Shape::Memory& memory, A a, const Factor<b_lies>& b, const Parts& parts, To to) {
  constexpr int kEach = kParts / Shape::kOfEach;
  const int warp = threadIdx.x / 32;
  float* const own = memory.numbers + warp * kTile;
  WarpTile<a_lies, b_lies, Shape::kPrecision> sums;
  sums.multiply(a(warp / Shape::kOfEach), b, parts, warp % Shape::kOfEach * kEach, kEach, [&](int part) {
    if (part + 1 < kEach) {
      sums.keep(own);
    } else {
      if (kEach > 1) {
        sums.add_kept(own);
        __syncwarp();
      }
      sums.put(own);
    }
  });
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile * Shape::kDown / 4 / Shape::kThreads; ++i) {
    const int at = i * Shape::kThreads + static_cast<int>(threadIdx.x), t = at / (kTile / 4);
    const int row = at % (kTile / 4) * 4 / kTileColumns, column = at * 4 % kTileColumns;
    const float* const here = memory.numbers + t * Shape::kOfEach * kTile + place(row, column);
    float4 sum[Shape::kOfEach];
#pragma unroll
    for (int w = 0; w < Shape::kOfEach; ++w) sum[w] = *reinterpret_cast<const float4*>(here + w * kTile);
#pragma unroll
    for (int apart = 1; apart < Shape::kOfEach; apart *= 2)
#pragma unroll
      for (int w = 0; w < Shape::kOfEach; w += 2 * apart) sum[w] = plus(sum[w], sum[w + apart]);
    to(t)(row, column, sum[0]);
  }
}

// A product's depth, cut so that its parts have every eighth slice.
__device__ inline Parts slices_in_turn() { return {0, 0, kSlice, kParts * kSlice}; }

// How the rows of a job's shards are cut into tiles: a shard's by themselves. Made on the host: a GPU is slow to
// divide.
struct RowTiles {
  int each, rows_each, count;  // tiles of a shard, its rows; tiles of the job
  uint64_t inverse;            // of `each`, times 2^32
  RowTiles(int shards, int rows)
      : each((rows + kTileRows - 1) / kTileRows),
        rows_each(rows),
        count(shards * each),
        inverse((uint64_t{1} << 32) / static_cast<uint64_t>(each) + 1) {}
  __host__ __device__ int blocks(int down) const { return (count + down - 1) / down; }
  bool whole() const { return rows_each % kTileRows == 0 && count % 2 == 0; }
  __device__ int set(int tile) const { return static_cast<int>(static_cast<uint32_t>(tile) * inverse >> 32); }
  __device__ int row(int tile) const { return (tile - set(tile) * each) * kTileRows; }
  __device__ int rows(int tile) const { return tile < count ? rows_each - row(tile) : 0; }  // from there to its end
};

// Four numbers of a product's row go to a matrix that begins at `data`; what is beyond `rows` or `columns` is dropped.
template <class Shape>
struct Target {
  float* data;
  int stride, rows, columns;
  __device__ bool has(int row, int column) const { return Shape::kWhole || (row < rows && column < columns); }
  __device__ void put(int row, int column, float4 y) const {
    *reinterpret_cast<float4*>(data + row * stride + column) = y;
  }
};

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
