// rl/replay/priority.h -- priorities of transitions as integers, with the same bits on CPU and CUDA.
//
// A priority is (|error| + floor)^alpha in units of 2^-20, between 1 and 2^31 - 1. Integers, because their sums are
// exact: they do not drift with updates, and a buffer cut into shards has the very prefix sums of a whole one.
#pragma once

#include <cstdint>

#include "kernels/normal_quantile.h"

namespace tandem {

inline constexpr double kPriorityUnits = 0x1p20;  // of a priority of 1
inline constexpr int64_t kLargestPriority = (int64_t{1} << 31) - 1;
// Above every priority. A shard reports its least priority as this minus it, so that a maximum combines them.
inline constexpr int64_t kNoPriority = int64_t{1} << 40;
inline constexpr double kPriorityFloor = 1e-3;  // added to every TD error, so that every row may be drawn

// e^x for |x| < 700, within 2 ulp; like exact_log() it uses exactly rounded operations only.
TANDEM_HD double exact_exp(double x) {
  const double turns = x * 1.4426950408889634;
  const int64_t k = static_cast<int64_t>(turns < 0.0 ? turns - 0.5 : turns + 0.5);
  const double n = static_cast<double>(k);
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;  // |r| < 0.35
  constexpr double kFactors[] = {1.0,
                                 1.0,
                                 1.0 / 2,
                                 1.0 / 6,
                                 1.0 / 24,
                                 1.0 / 120,
                                 1.0 / 720,
                                 1.0 / 5040,
                                 1.0 / 40320,
                                 1.0 / 362880,
                                 1.0 / 3628800,
                                 1.0 / 39916800,
                                 1.0 / 479001600,
                                 1.0 / 6227020800,
                                 1.0 / 87178291200};
  double sum = kFactors[14];
  for (int i = 13; i >= 0; --i) sum = kFactors[i] + sum * r;
  const uint64_t bits = static_cast<uint64_t>(k + 1023) << 52;
  double scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return sum * scale;
}

// x^y for 1e-300 < x < 1e300 and small y.
TANDEM_HD double exact_pow(double x, double y) { return exact_exp(y * exact_log(x)); }

TANDEM_HD int64_t priority_of(float error, double alpha) {
  const double size = (error < 0.0f ? -static_cast<double>(error) : static_cast<double>(error)) + kPriorityFloor;
  if (!(size < 1e9)) return kLargestPriority;  // NaN too
  const double units = exact_pow(size, alpha) * kPriorityUnits + 0.5;
  if (units >= static_cast<double>(kLargestPriority)) return kLargestPriority;
  return units < 1.0 ? 1 : static_cast<int64_t>(units);
}

// The importance weight of a transition of priority p among draws whose smallest priority is `least`. With P = p / sum
// and N transitions, (N P)^-beta divided by the largest such weight: N and the sum fall out.
TANDEM_HD float importance_weight(int64_t p, int64_t least, double beta) {
  return p <= least ? 1.0f : static_cast<float>(exact_pow(static_cast<double>(least) / static_cast<double>(p), beta));
}

}  // namespace tandem
