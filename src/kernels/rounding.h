// kernels/rounding.h -- GEMM operands in fewer bits: a float rounded to tf32, bf16 or fp16, still stored as a float.
// NaN stays NaN, overflow becomes infinity.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

enum class Precision : int32_t { kFp32, kTf32, kBf16, kFp16 };

TANDEM_HD float rounded(Precision precision, float x) {
  if (precision == Precision::kFp32) return x;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return x;
  if (precision == Precision::kTf32) {  // ties away from zero, as cvt.rna.tf32 does
    bits = (bits + 0x1000u) & 0xFFFFE000u;
  } else if (precision == Precision::kBf16) {  // ties to even, here and below
    bits = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
  } else if (magnitude < 0x38800000u) {  // fp16 subnormals: steps of 2^-24, as floats in [0.5, 1)
    const float near = ((x < 0 ? -x : x) + 0.5f) - 0.5f;
    uint32_t near_bits;
    __builtin_memcpy(&near_bits, &near, sizeof near_bits);
    bits = near_bits | (bits & 0x80000000u);
  } else {
    bits = (bits + 0xFFFu + (bits >> 13 & 1u)) & 0xFFFFE000u;
    if ((bits & 0x7FFFFFFFu) >= 0x47800000u) bits = 0x7F800000u | (bits & 0x80000000u);  // from 65,520 on
  }
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace tandem
