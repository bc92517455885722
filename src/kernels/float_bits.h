// kernels/float_bits.h -- numbers of a FloatType in memory: read as float, written back by rounding to nearest, ties to
// even. The same bits on the CPU and on a GPU; NaN stays NaN.
#pragma once

#include <cstdint>

#include "kernels/float_type.h"
#include "kernels/portable.h"
#include "kernels/rounding.h"

namespace tandem {

TANDEM_HD float float_of_bits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
TANDEM_HD uint32_t bits_of_float(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

TANDEM_HD float bf16_to_float(uint16_t x) { return float_of_bits(static_cast<uint32_t>(x) << 16); }
TANDEM_HD uint16_t float_to_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // a payload in the lower half must not become Inf
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

TANDEM_HD float half_to_float(uint16_t x) {
  const uint32_t sign = (x & 0x8000u) << 16, rest = x & 0x7FFFu;
  if (rest >= 0x7C00u) return float_of_bits(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  // 2^112 moves the exponent's bias from 15 to 127, and makes subnormals normal.
  return float_of_bits(sign | bits_of_float(float_of_bits(rest << 13) * 0x1p112f));
}
TANDEM_HD uint16_t float_to_half(float x) {
  const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000u;
  if (x != x) return static_cast<uint16_t>(sign | 0x7E00u);
  const uint32_t near = bits_of_float(rounded(Precision::kFp16, x)) & 0x7FFFFFFFu;
  if (near >= 0x7F800000u) return static_cast<uint16_t>(sign | 0x7C00u);
  return static_cast<uint16_t>(sign | bits_of_float(float_of_bits(near) * 0x1p-112f) >> 13);
}

constexpr int bytes_of(FloatType type) { return type == FloatType::kFloat ? 4 : 2; }

TANDEM_HD float load_float(const void* data, FloatType type, int64_t index) {
  if (type == FloatType::kFloat) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == FloatType::kBFloat16 ? bf16_to_float(bits) : half_to_float(bits);
}
TANDEM_HD void store_float(void* data, FloatType type, int64_t index, float x) {
  if (type == FloatType::kFloat)
    static_cast<float*>(data)[index] = x;
  else
    static_cast<uint16_t*>(data)[index] = type == FloatType::kBFloat16 ? float_to_bf16(x) : float_to_half(x);
}
// What store_float() and load_float() leave of it.
TANDEM_HD float round_to(FloatType type, float x) {
  if (type == FloatType::kFloat) return x;
  return type == FloatType::kBFloat16 ? bf16_to_float(float_to_bf16(x)) : half_to_float(float_to_half(x));
}

// Numbers that a kernel reads or writes; data = null: there are none.
struct TypedInput {
  const void* data = nullptr;
  FloatType type = FloatType::kFloat;
};
struct TypedOutput {
  void* data = nullptr;
  FloatType type = FloatType::kFloat;
};
// The same from element `first` on.
inline TypedInput from_element(const TypedInput& in, int64_t first) {
  return {in.data ? static_cast<const char*>(in.data) + first * bytes_of(in.type) : nullptr, in.type};
}
inline TypedOutput from_element(const TypedOutput& out, int64_t first) {
  return {out.data ? static_cast<char*>(out.data) + first * bytes_of(out.type) : nullptr, out.type};
}

}  // namespace tandem
