// rl/cuda_dqn_products.h -- tiles of matrix products in fp32: 32 x 64 numbers by 128 threads, 4 x 4 a thread, each a
// chain of fused multiply-adds over k (deep_product: two of them, by slices, then added). So a number depends on its
// row and column alone.
#pragma once

#include <cstdint>

#include "kernels/cuda_portable.h"

namespace tandem::cuda {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
inline constexpr int kTileRows = 32, kTileColumns = 64, kTileDepth = 32, kTileThreads = 128;
inline constexpr int kDepthGroups = 2;  // of threads that share a tile's depth in deep_product()

// Blocks for `count` things, `size` to each.
inline unsigned cuts(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }

struct TileMemory {
  alignas(16) float a[kTileDepth][kTileRows + 4];
  alignas(16) float b[kTileDepth][kTileColumns + 4];
};

// How a factor lies: element (i, k) at [i * stride + k], or at [k * stride + i]. Strides and i's count divide by four;
// so does k's count where k runs inside.
enum class Lies { kDepthInside, kDepthOutside };

template <Lies lies, int kLength, int kFours>
struct TileSide {
  const float* data;
  int64_t stride;
  int length, depth;  // valid i and k
  float4 held[kFours];

  // Four numbers of the tile for thread `t`, number j.
  __device__ void place(int t, int j, int& i, int& k) const {
    const int n = t + kTileThreads * j;
    if (lies == Lies::kDepthInside) {  // whole lines of 128 bytes, at the cost of bank conflicts: measured, it is less
      i = n / (kTileDepth / 4);
      k = n % (kTileDepth / 4) * 4;
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
  template <int kPitch>
  __device__ void put(int t, float (&to)[kTileDepth][kPitch]) const {
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      int i, k;
      place(t, j, i, k);
      if (lies == Lies::kDepthInside) {
        to[k][i] = held[j].x;
        to[k + 1][i] = held[j].y;
        to[k + 2][i] = held[j].z;
        to[k + 3][i] = held[j].w;
      } else {
        *reinterpret_cast<float4*>(&to[k][i]) = held[j];
      }
    }
  }
};

// One slice of depth, of what lies in the tile's memory.
__device__ inline void add_slice(float (&sums)[4][4], int t, const TileMemory& memory) {
#pragma unroll 8
  for (int k = 0; k < kTileDepth; ++k) {
    const float4 x = *reinterpret_cast<const float4*>(&memory.a[k][t / 16 * 4]);
    const float4 y = *reinterpret_cast<const float4*>(&memory.b[k][t % 16 * 4]);
    const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[r][c] = fmaf(xs[r], ys[c], sums[r][c]);
  }
}

// sums[r][c] = the product's number at row 4 * (t / 16) + r, column 4 * (t % 16) + c of the tile, over k in slices of
// kTileDepth: `first`, first + step, ... All threads of a block call it, with equally many slices.
template <Lies a_lies, Lies b_lies>
__device__ void tile_product(float (&sums)[4][4], const float* a, int64_t a_stride, int rows, const float* b,
                             int64_t b_stride, int columns, int depth, TileMemory& memory, int begin = 0,
                             int step = kTileDepth) {
  const int t = threadIdx.x % kTileThreads;
  TileSide<a_lies, kTileRows, 2> left{a, a_stride, rows, depth, {}};
  TileSide<b_lies, kTileColumns, 4> right{b, b_stride, columns, depth, {}};
#pragma unroll
  for (int r = 0; r < 4; ++r)
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[r][c] = 0;
  left.fetch(t, begin);
  right.fetch(t, begin);
  for (int first = begin; first - begin < depth; first += step) {
    __syncthreads();
    left.put(t, memory.a);
    right.put(t, memory.b);
    __syncthreads();
    if (first + step - begin < depth) {  // while this one is worked on
      left.fetch(t, first + step);
      right.fetch(t, first + step);
    }
    add_slice(sums, t, memory);
  }
}

// The same by kDepthGroups x kTileThreads threads: group g takes slices g, g + kDepthGroups, ..., and the groups' sums
// are added in their order. True for the threads that have the result: the first group's.
template <Lies a_lies, Lies b_lies>
__device__ bool deep_product(float (&sums)[4][4], const float* a, int64_t a_stride, int rows, const float* b,
                             int64_t b_stride, int columns, int depth, TileMemory (&memory)[kDepthGroups]) {
  const int group = threadIdx.x / kTileThreads, t = threadIdx.x % kTileThreads;
  tile_product<a_lies, b_lies>(sums, a, a_stride, rows, b, b_stride, columns, depth, memory[group], group * kTileDepth,
                               kDepthGroups * kTileDepth);
  __syncthreads();
  float(*const room)[16] = reinterpret_cast<float(*)[16]>(&memory[0]);
  static_assert(sizeof(TileMemory) >= kTileThreads * 16 * sizeof(float));
  for (int g = 1; g < kDepthGroups; ++g) {
    if (group == g)
#pragma unroll
      for (int i = 0; i < 16; ++i) room[t][i] = sums[i / 4][i % 4];
    __syncthreads();
    if (group == 0)
#pragma unroll
      for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] = sums[i / 4][i % 4] + room[t][i];
    if (g + 1 < kDepthGroups) __syncthreads();
  }
  return group == 0;
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
