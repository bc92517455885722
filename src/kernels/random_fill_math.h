// kernels/random_fill_math.h -- from a random word to one element of each fill, shared by CPU and CUDA.
#pragma once

#include <cstdint>

#include "kernels/normal_quantile.h"
#include "kernels/philox.h"
#include "kernels/portable.h"

namespace tandem {

struct UniformShape {
  float low, span;
};
TANDEM_HD UniformShape uniform_shape(float low, float high) { return {low, high - low}; }
TANDEM_HD float shaped_uniform(uint32_t bits, const UniformShape& shape) {
  return shape.low + shape.span * uniform_from_u32(bits);
}

struct NormalShape {
  float mean, deviation;
};
TANDEM_HD float shaped_normal(float normal, const NormalShape& shape) { return shape.mean + shape.deviation * normal; }

// A word is kept if it is at most `last_kept`; `none` says that no word is. So that both 0 and 1 are exact.
struct MaskShape {
  uint32_t last_kept;
  bool none;
  float kept_value;
};
TANDEM_HD MaskShape mask_shape(double keep_probability, float kept_value) {
  const double words = keep_probability * 0x1p32 + 0.5;
  if (!(words >= 1.0)) return {0u, true, kept_value};
  const uint64_t kept = words >= 0x1p32 ? uint64_t{1} << 32 : static_cast<uint64_t>(words);
  return {static_cast<uint32_t>(kept - 1), false, kept_value};
}
TANDEM_HD float mask_from_u32(uint32_t bits, const MaskShape& shape) {
  return bits <= shape.last_kept ? shape.kept_value : 0.0f;
}
TANDEM_HD MaskShape dropout_shape(double drop_probability) {
  const double keep = 1.0 - drop_probability;
  return mask_shape(keep, keep > 0.0 ? static_cast<float>(1.0 / keep) : 0.0f);
}

}  // namespace tandem
