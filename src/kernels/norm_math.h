// kernels/norm_math.h -- layer norm's arithmetic and the order of its sums, shared by CPU and CUDA.
//
// Element e of a row belongs to accumulator e % (8 lanes): lane (e / 8) % lanes, slot e % 8. An accumulator adds its
// elements from the first to the last. A lane then adds its slots pairwise, lanes are added pairwise in groups of 32 (l
// and l ^ 16, ^ 8, ...), and groups likewise. So a lane reads 16 bytes at once, and a CPU adds whole vectors.
//
// Gradients of weight and bias: a shard's rows are cut into blocks of norm_block_rows(). In a block, row r goes to
// sum r % norm_row_groups(), in order; these are added in order. Block b's sum goes to total b % 8, in order; the eight
// totals are added pairwise (t and t + 4, + 2, + 1).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

inline constexpr int kNormSlots = 8;
TANDEM_HD int norm_lanes(int width) { return width <= 1024 ? 32 : 256; }
TANDEM_HD constexpr int norm_threads(int lanes) { return lanes == 32 ? 128 : 256; }  // of a block, backward
TANDEM_HD int norm_row_groups(int width) { return norm_threads(norm_lanes(width)) / norm_lanes(width); }
inline constexpr int kNormTotals = 8;

TANDEM_HD float add_slots(const float* s) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

struct RowStatistics {
  float mean, rstd;
};
TANDEM_HD float squared_deviation(float x, float mean) { return (x - mean) * (x - mean); }
TANDEM_HD float reciprocal_deviation(float squares, int width, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
}
TANDEM_HD float normalised(float x, const RowStatistics& row) { return (x - row.mean) * row.rstd; }

// g = gradient of `out` times weight, xhat = normalised(x); sums over the row: of g, and of g * xhat.
struct RowGradients {
  float mean_g, mean_g_xhat, rstd;
};
TANDEM_HD RowGradients row_gradients(float sum_g, float sum_g_xhat, float rstd, int width) {
  return {sum_g / static_cast<float>(width), sum_g_xhat / static_cast<float>(width), rstd};
}
TANDEM_HD float input_gradient(float g, float xhat, const RowGradients& row) {
  return (g - row.mean_g - xhat * row.mean_g_xhat) * row.rstd;
}

}  // namespace tandem
