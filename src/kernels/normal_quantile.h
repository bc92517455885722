// kernels/normal_quantile.h -- from a random word to a standard normal number, with the same bits everywhere.
//
// Wichura's AS 241 (PPND16): the inverse of the normal distribution as ratios of polynomials, good to about 1e-16. It
// needs one logarithm, which is ours (fdlibm's series on bits of the exponent), because libm's and CUDA's differ in the
// last bit.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

// Natural logarithm of a positive, normal double; within 1 ulp.
TANDEM_HD double exact_log(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  // Moves sqrt(1/2) to the start of a binade, so that the fraction below falls into [sqrt(1/2), sqrt(2)).
  bits += uint64_t{0x3FF00000u - 0x3FE6A09Eu} << 32;
  const uint64_t exponent_bits = (bits >> 52) | 0x4330000000000000u;  // the double 2^52 + biased exponent
  double exponent;
  __builtin_memcpy(&exponent, &exponent_bits, sizeof exponent);
  exponent -= 0x1p52 + 1023.0;
  bits = (bits & 0x000FFFFFFFFFFFFFu) + (uint64_t{0x3FE6A09Eu} << 32);
  double fraction;
  __builtin_memcpy(&fraction, &bits, sizeof fraction);

  const double f = fraction - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f;
  const double low = s * (half_square + (even + odd)) + exponent * 1.90821492927058770002e-10;
  return exponent * 6.93147180369123816490e-01 - ((half_square - low) - f);
}

inline constexpr double kQuantileCentre = 0.425;  // |q| up to here takes the central ratio

// q = p - 1/2 with |q| <= kQuantileCentre.
TANDEM_HD double normal_quantile_centre(double q) {
  const double r = 0.180625 - q * q;
  const double top =
      (((((((r * 2.5090809287301226727e+3 + 3.3430575583588128105e+4) * r + 6.7265770927008700853e+4) * r +
           4.5921953931549871457e+4) *
              r +
          1.3731693765509461125e+4) *
             r +
         1.9715909503065514427e+3) *
            r +
        1.3314166789178437745e+2) *
           r +
       3.3871328727963666080e+0);
  const double bottom =
      (((((((r * 5.2264952788528545610e+3 + 2.8729085735721942674e+4) * r + 3.9307895800092710610e+4) * r +
           2.1213794301586595867e+4) *
              r +
          5.3941960214247511077e+3) *
             r +
         6.8718700749205790830e+2) *
            r +
        4.2313330701600911252e+1) *
           r +
       1.0);
  return q * top / bottom;
}

// q = p - 1/2 with |q| > kQuantileCentre, and min(p, 1 - p) >= 1.4e-11 (AS 241's third ratio begins there; a 32-bit
// word ends at 1.2e-10).
TANDEM_HD double normal_quantile_tail(double q) {
  const double nearer = 0.5 - (q < 0.0 ? -q : q);
  const double r = sqrt(-exact_log(nearer)) - 1.6;
  const double top =
      (((((((r * 7.74545014278341407640e-4 + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r +
           1.27045825245236838258e+0) *
              r +
          3.64784832476320460504e+0) *
             r +
         5.76949722146069140550e+0) *
            r +
        4.63033784615654529590e+0) *
           r +
       1.42343711074968357734e+0);
  const double bottom =
      (((((((r * 1.05075007164441684324e-9 + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r +
           1.48103976427480074590e-1) *
              r +
          6.89767334985100004550e-1) *
             r +
         1.67638483018380384940e+0) *
            r +
        2.05319162663775882187e+0) *
           r +
       1.0);
  const double ratio = top / bottom;
  return q < 0.0 ? -ratio : ratio;
}

// The middle of the word's interval, p = (bits + 1/2) / 2^32, less 1/2: exact, never 0, symmetric about 0.
TANDEM_HD double centred_from_u32(uint32_t bits) {
  return (static_cast<double>(static_cast<int32_t>(bits ^ 0x80000000u)) + 0.5) * 0x1p-32;
}

TANDEM_HD bool in_quantile_centre(double q) { return (q < 0.0 ? -q : q) <= kQuantileCentre; }

TANDEM_HD float normal_from_u32(uint32_t bits) {
  const double q = centred_from_u32(bits);
  return static_cast<float>(in_quantile_centre(q) ? normal_quantile_centre(q) : normal_quantile_tail(q));
}

}  // namespace tandem
