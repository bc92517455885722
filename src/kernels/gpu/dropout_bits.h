// kernels/gpu/dropout_bits.h -- dropout masks as bits: one word per lane and row, the four columns of a lane's i-th
// float4 in bits 4 i to 4 i + 3. The same random numbers as fill_dropout_mask().
#pragma once

#include "kernels/gpu/warp.h"
#include "kernels/random_fill_math.h"

namespace tandem::cuda {

inline constexpr int kMaxDropoutWidth = 128 * 8;  // a word holds eight float4s

// The word of this lane; 1: kept. Element `column` of a row is number row * width + column of the key's stream.
__device__ inline uint32_t draw_dropout_bits(const RandomKey& key, int row, int width, const MaskShape& mask) {
  const int lane = threadIdx.x % 32;
  uint32_t bits = 0;
#pragma unroll 1
  for (int column = lane * 4, first_bit = 0; column < width; column += 128, first_bit += 4) {
    const PhiloxBlock block = random_block(key, static_cast<uint64_t>(int64_t{row} * width + column) / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (mask_from_u32(block.word[i], mask) != 0) bits |= 1u << (first_bit + i);
  }
  return bits;
}

// Dropout of a lane's `index`-th float4: kept_value times y, or 0.
__device__ inline float4 apply_dropout(float4 y, uint32_t bits, int index, float kept_value) {
  const uint32_t mask_bits = bits >> 4 * index;
  return {y.x * (mask_bits & 1 ? kept_value : 0.0f), y.y * (mask_bits & 2 ? kept_value : 0.0f),
          y.z * (mask_bits & 4 ? kept_value : 0.0f), y.w * (mask_bits & 8 ? kept_value : 0.0f)};
}

}  // namespace tandem::cuda
