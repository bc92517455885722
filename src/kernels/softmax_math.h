// kernels/softmax_math.h -- exp, log and the running maximum and sum of a softmax, from + - * / alone: the same bits on
// the CPU and on a GPU.
//
// Element c of a row belongs to lane (c / 8) % lanes, slot c % 8. A lane goes through its elements from the first to
// the last, eight at a time. Then lanes are joined pairwise in groups of 32 (l and l + 16, + 8, ...), and groups
// likewise.
#pragma once

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/portable.h"

namespace tandem {

inline constexpr int kSoftmaxSlots = 8;
TANDEM_HD int softmax_lanes(int64_t classes) { return classes <= 1024 ? 32 : 256; }

// exp(x) for x up to about 0 (at most 80): 2^n times a polynomial of degree 5 in [-1/2, 1/2]. Relative error below 3e-7
// near 0 and 2e-6 at -30; 0 below -87; NaN stays NaN. FMA is written out, as in gelu_math.h.
TANDEM_HD float softmax_exp(float x) {
  constexpr float kLog2e = 1.44269504f, kToInteger = 12582912.0f;  // 1.5 * 2^23: the sum is rounded to an integer
  const float shifted = __builtin_fmaf(x, kLog2e, kToInteger);
  const float f = __builtin_fmaf(x, kLog2e, -(shifted - kToInteger));
  float p = 0.00132647273f;
  p = __builtin_fmaf(p, f, 0.00967151299f);
  p = __builtin_fmaf(p, f, 0.0555073358f);
  p = __builtin_fmaf(p, f, 0.240222424f);
  p = __builtin_fmaf(p, f, 0.693147004f);
  p = __builtin_fmaf(p, f, 1.0f);
  const float power = float_of_bits((bits_of_float(shifted) << 23) + 0x3F800000u);  // 2^n
  return x < -87.0f ? 0.0f : p * power;
}

// log(x) for x > 0, rounded once: in double, by 2 atanh((m - 1) / (m + 1)). 0 gives -Inf, NaN and Inf stay.
TANDEM_HD float softmax_log(float x) {
  const uint32_t bits = bits_of_float(x);
  if (bits == 0u) return float_of_bits(0xFF800000u);
  if (bits >= 0x7F800000u || bits < 0x00800000u) return x - x == 0 ? -87.33654f : x;  // sums are never that small
  const uint32_t shifted = bits - 0x3F3504F3u;                                        // from sqrt(1/2) on
  const int exponent = static_cast<int32_t>(shifted) >> 23;
  const double m = float_of_bits((shifted & 0x7FFFFFu) + 0x3F3504F3u);
  const double z = (m - 1.0) / (m + 1.0), z2 = z * z;
  double p = 1.0 / 15.0;
  p = p * z2 + 1.0 / 13.0;
  p = p * z2 + 1.0 / 11.0;
  p = p * z2 + 1.0 / 9.0;
  p = p * z2 + 1.0 / 7.0;
  p = p * z2 + 1.0 / 5.0;
  p = p * z2 + 1.0 / 3.0;
  p = p * z2 + 1.0;
  return static_cast<float>(2.0 * z * p + exponent * 0.693147180559945309);
}

inline constexpr uint32_t kMinusInfinity = 0xFF800000u;

// What exponents are taken relative to: the maximum, or 0 as long as there is none.
TANDEM_HD float softmax_reference(float maximum) { return maximum == float_of_bits(kMinusInfinity) ? 0.0f : maximum; }

// A lane's maximum, and the sums of exp(x - maximum) of its slots.
struct SoftmaxLane {
  float maximum;
  float sums[kSoftmaxSlots];
};
TANDEM_HD void begin_softmax(SoftmaxLane& lane) {
  lane.maximum = float_of_bits(kMinusInfinity);
  for (int s = 0; s < kSoftmaxSlots; ++s) lane.sums[s] = 0;
}
// NaN is no maximum, but makes its sum NaN.
TANDEM_HD void add_to_softmax(SoftmaxLane& lane, const float* x, int count) {
  float maximum = lane.maximum;
  for (int s = 0; s < kSoftmaxSlots; ++s) maximum = s < count && x[s] > maximum ? x[s] : maximum;
  if (maximum > lane.maximum) {
    const float factor = softmax_exp(lane.maximum - maximum);
    for (int s = 0; s < kSoftmaxSlots; ++s) lane.sums[s] = lane.sums[s] * factor;
    lane.maximum = maximum;
  }
  const float reference = softmax_reference(maximum);
  for (int s = 0; s < kSoftmaxSlots; ++s)
    if (s < count) lane.sums[s] = lane.sums[s] + softmax_exp(x[s] - reference);
}

struct SoftmaxSum {
  float maximum, sum;
};
TANDEM_HD SoftmaxSum end_softmax(const SoftmaxLane& lane) {
  const float* const s = lane.sums;
  return {lane.maximum, ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))};
}
// a and b may change places.
TANDEM_HD SoftmaxSum join_softmax(const SoftmaxSum& a, const SoftmaxSum& b) {
  const float maximum = a.maximum > b.maximum ? a.maximum : b.maximum, reference = softmax_reference(maximum);
  return {maximum, a.sum * softmax_exp(a.maximum - reference) + b.sum * softmax_exp(b.maximum - reference)};
}
// A row's maximum, and the log of the sum of exp(x - maximum). Two numbers, since their sum would round away the second
// where logits are large.
struct RowLogSum {
  float maximum, log_sum;
};
TANDEM_HD RowLogSum row_log_sum(const SoftmaxSum& all) {
  return {softmax_reference(all.maximum), softmax_log(all.sum)};
}
TANDEM_HD float row_loss(const RowLogSum& row, float logit) { return (row.maximum - logit) + row.log_sum; }

// A row's label: what it is worth.
struct LabelWeight {
  float weight;  // 0: the row is ignored; NaN: there is no such class
  bool ignored;
};
TANDEM_HD LabelWeight label_weight(int64_t label, int64_t classes, int64_t ignore_index, const float* class_weights) {
  if (label == ignore_index) return {0.0f, true};
  if (label < 0 || label >= classes) return {float_of_bits(0x7FC00000u), false};
  return {class_weights ? class_weights[label] : 1.0f, false};
}
TANDEM_HD float logit_gradient(float x, const RowLogSum& row, bool is_label, float scale) {
  const float p = softmax_exp((x - row.maximum) - row.log_sum);
  return (is_label ? p - 1.0f : p) * scale;
}

}  // namespace tandem
