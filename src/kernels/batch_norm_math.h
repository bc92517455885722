// kernels/batch_norm_math.h -- the arithmetic that cpu/batch_norm_kernels.cc and gpu/batch_norm_kernels.cu share.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

inline constexpr int kMomentLanes = 32, kMomentLaneRows = 8, kMomentBlock = kMomentLanes * kMomentLaneRows;

TANDEM_HD int64_t moment_blocks(int64_t rows) { return (rows + kMomentBlock - 1) / kMomentBlock; }

// Of `rows` rows, those r with r % lanes == lane.
TANDEM_HD int64_t rows_of_lane(int64_t rows, int lane, int lanes) {
  return rows > lane ? (rows - lane + lanes - 1) / lanes : 0;
}
// Of `rows` rows in blocks, those whose block b has b % lanes == lane.
TANDEM_HD int64_t rows_of_block_lane(int64_t rows, int lane, int lanes) {
  const int64_t whole = rows / kMomentBlock;
  return rows_of_lane(whole, lane, lanes) * kMomentBlock + (whole % lanes == lane ? rows % kMomentBlock : 0);
}

// Mean and sum of squared distances from it: Chan's update, which loses nothing to cancellation.
struct ChannelMoments {
  float mean, squares;
};
// The weights of two groups that are merged; the same for all channels.
struct MomentWeights {
  float share, squares;  // count_b / count, count_a * count_b / count
};
TANDEM_HD MomentWeights moment_weights(int64_t count_a, int64_t count_b) {
  const float a = static_cast<float>(count_a), b = static_cast<float>(count_b);
  const float share = b / (a + b);
  return {share, a * share};
}
TANDEM_HD ChannelMoments merged(const ChannelMoments& a, const ChannelMoments& b, const MomentWeights& weights) {
  const float delta = b.mean - a.mean;
  return {a.mean + delta * weights.share, a.squares + (b.squares + delta * delta * weights.squares)};
}

struct ChannelStatistics {
  float inv_std, unbiased_variance;
};
TANDEM_HD ChannelStatistics channel_statistics(float squares, int64_t rows, float eps) {
  const float variance = squares / static_cast<float>(rows);
  return {1.0f / sqrtf(variance + eps), squares / static_cast<float>(rows > 1 ? rows - 1 : 1)};
}

TANDEM_HD float normalised(float x, float mean, float scale, float bias) { return (x - mean) * scale + bias; }
TANDEM_HD float relu_of(float x) { return x <= 0.0f ? 0.0f : x; }  // NaN stays NaN
TANDEM_HD float where_positive(float gradient, float y) { return y <= 0.0f ? 0.0f : gradient; }

// What backward() takes of a channel: x_grad = scale * (y_grad - mean_grad - (x - mean) * slope).
struct BackwardTerms {
  float mean, scale, mean_grad, slope;
};
TANDEM_HD BackwardTerms backward_terms(float mean, float inv_std, float weight, float weight_leaf, float bias_leaf,
                                       int64_t rows) {
  const float count = static_cast<float>(rows);
  return {mean, inv_std * weight, bias_leaf / count, inv_std * (weight_leaf / count)};
}
TANDEM_HD float norm_x_grad(float y_grad, float x, const BackwardTerms& terms) {
  return terms.scale * ((y_grad - terms.mean_grad) - (x - terms.mean) * terms.slope);
}

}  // namespace tandem
