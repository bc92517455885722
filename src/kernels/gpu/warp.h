// kernels/gpu/warp.h -- what lanes of a warp do together: sums by shuffles in a fixed order; and arithmetic of float4.
#pragma once

#include <cstdint>

#include "kernels/gpu/intrinsics.h"

namespace tandem::cuda {

inline constexpr unsigned kFullMask = 0xFFFFFFFFu;

// Grid size: how many blocks of `size` items cover `count` items.
inline unsigned ceil_div(int64_t count, int64_t size) { return static_cast<unsigned>((count + size - 1) / size); }
inline bool divides(int size, int64_t count) { return count % size == 0; }

__device__ inline float4 load4(const float* src) { return *reinterpret_cast<const float4*>(src); }
__device__ inline void store4(float* dst, float4 x) { *reinterpret_cast<float4*>(dst) = x; }
__device__ inline float4 add4(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ inline float4 minus4(float4 x, float y) { return {x.x - y, x.y - y, x.z - y, x.w - y}; }
// NaN stays NaN, so that the guard of the update sees it.
__device__ inline float4 relu4(float4 x) {
  return {x.x <= 0 ? 0.0f : x.x, x.y <= 0 ? 0.0f : x.y, x.z <= 0 ? 0.0f : x.z, x.w <= 0 ? 0.0f : x.w};
}

// The sum over the lanes of a warp, by a butterfly of shuffles; every lane gets it.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) x = x + __shfl_xor_sync(kFullMask, x, lane_mask);
  return x;
}

// warp_sum() of sixteen values at once, to the same bits: lanes 2 i and 2 i + 1 get the i-th. A butterfly that halves
// the values at each level: 16 shuffles instead of 80, and five latencies instead of eighty.
template <int kCount = 8>  // values left to a lane after this level
__device__ float warp_sums(float (&x)[16]) {
  const bool upper = (threadIdx.x & 2 * kCount) != 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float kept = upper ? x[i + kCount] : x[i], sent = upper ? x[i] : x[i + kCount];
    x[i] = kept + __shfl_xor_sync(kFullMask, sent, 2 * kCount);
  }
  if constexpr (kCount > 1)
    return warp_sums<kCount / 2>(x);
  else
    return x[0] + __shfl_xor_sync(kFullMask, x[0], 1);
}

}  // namespace tandem::cuda
