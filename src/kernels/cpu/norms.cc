#include "kernels/cpu/norms.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

// One block in the order that norms.h states. A short last block is the same as one filled up with zeros: adding +0 to
// a sum of squares changes no bit.
__attribute__((always_inline)) inline double block_sum(const float* x, int64_t n) {
  double lanes[kNormLanes] = {};
  int64_t i = 0;
  for (; i + kNormLanes <= n; i += kNormLanes)
    for (int l = 0; l < kNormLanes; ++l) lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  for (int l = 0; i + l < n; ++l) lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  for (int width = kNormLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

__attribute__((always_inline)) inline bool is_nonfinite(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7F800000u) == 0x7F800000u;
}

__attribute__((always_inline)) inline bool any_nonfinite(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= is_nonfinite(x[i]) ? 1u : 0u;
  return found != 0;
}

}  // namespace

double sum_of_squares(const float* x, int64_t n, CpuVariant variant) {
  return run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    constexpr int64_t kGroup = kNormBlock * kNormBlocksPerGroup;
    double total = 0.0;
    for (int64_t group = 0; group < n; group += kGroup) {
      const int64_t group_end = std::min(n, group + kGroup);
      double sum = 0.0;
      for (int64_t block = group; block < group_end; block += kNormBlock)
        sum += block_sum(x + block, std::min(kNormBlock, group_end - block));
      total += sum;
    }
    return total;
  });
}

bool all_finite(const float* x, int64_t n, CpuVariant variant) {
  return run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t block = 0; block < n; block += kNormBlock)
      if (any_nonfinite(x + block, std::min(kNormBlock, n - block))) return false;
    return true;
  });
}

int64_t first_nonfinite(const float* x, int64_t n, CpuVariant variant) {
  return run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t block = 0; block < n; block += kNormBlock) {
      const int64_t end = std::min(n, block + kNormBlock);
      if (!any_nonfinite(x + block, end - block)) continue;
      for (int64_t i = block; i < end; ++i)
        if (is_nonfinite(x[i])) return i;
    }
    return int64_t{-1};
  });
}

}  // namespace tandem
