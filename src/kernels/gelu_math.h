// kernels/gelu_math.h -- GELU and its gradient, in the tanh form (GPT-2) and in the erf form (BERT).
//
// Only + - * and FMA, all rounded as IEEE 754 says, so CPU and GPU give equal bits. FMA is written out (portable.h
// forbids the compiler to choose it): the kernels are bound by instructions as much as by memory, and it halves them.
// Absolute error of both forms: below 3e-7 times max(1, |x|).
#pragma once

#include "kernels/float_bits.h"

namespace tandem {

enum class GeluForm { kTanh, kErf };

TANDEM_HD float gelu_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// Beyond 9 either form is x or 0 to the last bit that matters, and no power below leaves float's range.
TANDEM_HD float gelu_from_below(float x) { return x < -9.0f ? -9.0f : x; }
TANDEM_HD float gelu_clamped(float x) { return gelu_from_below(x) > 9.0f ? 9.0f : gelu_from_below(x); }

// 2^t for |t| < 100, relative error 1e-7: t = n + f, |f| <= 1/2, a minimax polynomial in f, n added to the exponent.
TANDEM_HD float gelu_exp2(float t) {
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: the sum's last bit is 1
  const float shifted = t + kToInteger;
  const float f = t - (shifted - kToInteger);
  float p = 0x1.5c08e6p-10f;
  p = gelu_fma(p, f, 0x1.3d0c52p-7f);
  p = gelu_fma(p, f, 0x1.c6b6e4p-5f);
  p = gelu_fma(p, f, 0x1.ebf918p-3f);
  p = gelu_fma(p, f, 0x1.62e428p-1f);
  p = gelu_fma(p, f, 0x1.000002p+0f);
  return float_of_bits(bits_of_float(p) + (bits_of_float(shifted) << 23));
}

// 1 / d for 1 <= d < 2^100: a guess from the exponent (5 % off), then three steps of Newton's method.
TANDEM_HD float gelu_reciprocal(float d) {
  float r = float_of_bits(0x7EF127EAu - bits_of_float(d));
  r = gelu_fma(r, gelu_fma(-d, r, 1.0f), r);
  r = gelu_fma(r, gelu_fma(-d, r, 1.0f), r);
  return gelu_fma(r, gelu_fma(-d, r, 1.0f), r);
}

// x * logistic(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3), is x / 2 * (1 + tanh(u)) without its cancellation.
struct GeluTanhParts {
  float c, square;  // x within [-9, 9], and its square
  float e;          // exp(-2 u)
  float s;          // logistic(2 u) = 1 / (1 + e)
};
TANDEM_HD GeluTanhParts gelu_tanh_parts(float x) {
  constexpr float kLinear = -2.3022082f, kCubic = -0.10294324f;  // -2 sqrt(2 / pi) log2(e), and 0.044715 times that
  GeluTanhParts p;
  p.c = gelu_clamped(x);
  p.square = p.c * p.c;
  p.e = gelu_exp2(p.c * gelu_fma(p.square, kCubic, kLinear));
  p.s = gelu_reciprocal(1.0f + p.e);
  return p;
}

// Phi(x), the normal distribution, by Abramowitz and Stegun 7.1.26: Phi(-|x|) = exp(-x^2 / 2) / 2 * polynomial(t).
struct GeluErfParts {
  float c;    // x within [-9, 9]
  float e;    // exp(-x^2 / 2)
  float phi;  // Phi(x)
};
TANDEM_HD GeluErfParts gelu_erf_parts(float x) {
  constexpr float kHalfLog2e = -0.72134752f, kP = 0.23164189f;  // -log2(e) / 2; 0.3275911 / sqrt(2)
  GeluErfParts p;
  p.c = gelu_clamped(x);
  p.e = gelu_exp2(p.c * p.c * kHalfLog2e);
  const float t = gelu_reciprocal(gelu_fma(p.c < 0 ? -p.c : p.c, kP, 1.0f));
  float q = 0.5307027145f;  // the coefficients' halves
  q = gelu_fma(q, t, -0.7265760135f);
  q = gelu_fma(q, t, 0.7107068705f);
  q = gelu_fma(q, t, -0.142248368f);
  q = gelu_fma(q, t, 0.127414796f);
  const float tail = q * t * p.e;
  p.phi = p.c < 0 ? tail : 1.0f - tail;
  return p;
}

template <GeluForm kForm>
TANDEM_HD float gelu_of(float x) {
  if constexpr (kForm == GeluForm::kTanh)
    return gelu_from_below(x) * gelu_tanh_parts(x).s;
  else
    return gelu_from_below(x) * gelu_erf_parts(x).phi;
}

template <GeluForm kForm>
TANDEM_HD float gelu_slope(float x) {
  if constexpr (kForm == GeluForm::kTanh) {
    constexpr float kLinear = 1.5957691f, kCubic = 0.21406445f;  // 2 u' = kLinear + kCubic x^2
    const GeluTanhParts p = gelu_tanh_parts(x);
    return p.s * gelu_fma(p.c * (p.e * p.s), gelu_fma(p.square, kCubic, kLinear), 1.0f);
  } else {
    const GeluErfParts p = gelu_erf_parts(x);
    return gelu_fma(p.c * p.e, 0.39894228f, p.phi);  // 1 / sqrt(2 pi)
  }
}

}  // namespace tandem
