// kernels/gpu/typed_vectors.h -- eight neighbouring numbers of a FloatType at once, for the .cu files: 16 bytes per
// load or store (two of them for float). The type is an argument: all threads take the same branch. Kernels that use it
// can be emulated.
#pragma once

#include "kernels/float_bits.h"
#include "kernels/gpu/intrinsics.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

namespace tandem::cuda {

inline constexpr int kVector = 8;

#if defined(__CUDACC__)
__device__ __forceinline__ float float_of_half(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ uint16_t half_of_float(float x) { return __half_as_ushort(__float2half_rn(x)); }
#else
inline float float_of_half(uint16_t bits) { return half_to_float(bits); }
inline uint16_t half_of_float(float x) { return float_to_half(x); }
#endif

__device__ __forceinline__ void unpack8(const uint4& raw, FloatType type, float (&x)[kVector]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (type == FloatType::kBFloat16) {
      x[2 * i] = float_of_bits(words[i] << 16);
      x[2 * i + 1] = float_of_bits(words[i] & 0xFFFF0000u);
    } else {
      x[2 * i] = float_of_half(static_cast<uint16_t>(words[i]));
      x[2 * i + 1] = float_of_half(static_cast<uint16_t>(words[i] >> 16));
    }
  }
}

__device__ __forceinline__ uint16_t pack_one(float x, FloatType type) {
  if (type == FloatType::kBFloat16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900  // rounds as float_to_bf16() does
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return float_to_bf16(x);
#endif
  }
  return half_of_float(x);
}

// Two of them in a word, the first one in its lower half.
__device__ __forceinline__ uint32_t pack_two(float first, float second, FloatType type) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (type == FloatType::kBFloat16) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  }
#endif
  return pack_one(first, type) | static_cast<uint32_t>(pack_one(second, type)) << 16;
}

__device__ __forceinline__ float load_one(const void* data, FloatType type, int64_t index) {
  if (type == FloatType::kFloat) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == FloatType::kBFloat16 ? bf16_to_float(bits) : float_of_half(bits);
}
__device__ __forceinline__ void store_one(void* data, FloatType type, int64_t index, float x) {
  if (type == FloatType::kFloat)
    static_cast<float*>(data)[index] = x;
  else
    static_cast<uint16_t*>(data)[index] = pack_one(x, type);
}
__device__ __forceinline__ float round_one(FloatType type, float x) {
  if (type == FloatType::kFloat) return x;
  const uint16_t bits = pack_one(x, type);
  return type == FloatType::kBFloat16 ? bf16_to_float(bits) : float_of_half(bits);
}

// The address of element `index` must be a multiple of 16 bytes.
__device__ __forceinline__ void load8(const void* data, FloatType type, int64_t index, float (&x)[kVector]) {
  if (type == FloatType::kFloat) {
    const float4* const from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + index);
    const float4 a = from[0], b = from[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else {
    unpack8(*reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + index), type, x);
  }
}
__device__ __forceinline__ void store8(void* data, FloatType type, int64_t index, const float (&x)[kVector]) {
  if (type == FloatType::kFloat) {
    float4* const to = reinterpret_cast<float4*>(static_cast<float*>(data) + index);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pack_two(x[2 * i], x[2 * i + 1], type);
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + index) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// The same for `count` numbers from anywhere: one by one unless `whole` says that there are eight, and aligned.
__device__ __forceinline__ void load8(const void* data, FloatType type, int64_t index, int count, bool whole,
                                      float (&x)[kVector]) {
  if (whole) return load8(data, type, index, x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = i < count ? load_one(data, type, index + i) : 0.0f;
}
__device__ __forceinline__ void store8(void* data, FloatType type, int64_t index, int count, bool whole,
                                       const float (&x)[kVector]) {
  if (whole) return store8(data, type, index, x);
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    if (i < count) store_one(data, type, index + i, x[i]);
}

}  // namespace tandem::cuda
