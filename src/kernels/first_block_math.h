// kernels/first_block_math.h -- what cpu/first_block_kernels.cc and gpu/first_block.h share: tiles, the order of sums,
// and the small sums in double.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/first_block_kernels.h"
#include "kernels/norm_pool_math.h"

namespace tandem {

// ---- products of places: x[q] x[q + d] for the 63 offsets d up to 2 each way, half of them by symmetry, and x[q] ----
inline constexpr int kLags = 64, kPlainSum = 63, kBorderClasses = 27;
inline constexpr int kLagSums = kBorderClasses * kLags;

struct TapOffset {
  int t, h, w;
};
TANDEM_HD int lag_number(const TapOffset& d) {
  if (d.t == 0 && d.h == 0) return d.w;
  if (d.t == 0) return 3 + (d.h - 1) * 5 + (d.w + 2);
  return 13 + (d.t - 1) * 25 + (d.h + 2) * 5 + (d.w + 2);
}
TANDEM_HD TapOffset lag_offset(int number) {
  if (number < 3) return {0, 0, number};
  if (number < 13) return {0, 1 + (number - 3) / 5, (number - 3) % 5 - 2};
  const int rest = number - 13;
  return {1 + rest / 25, rest % 25 / 5 - 2, rest % 5 - 2};
}
TANDEM_HD bool comes_later(const TapOffset& d) { return d.t != 0 ? d.t > 0 : d.h != 0 ? d.h > 0 : d.w >= 0; }
TANDEM_HD TapOffset tap_offset(int tap) { return {tap / 9 - 1, tap / 3 % 3 - 1, tap % 3 - 1}; }

// Along an axis a place is the first one (0), the last one (2) or between (1).
TANDEM_HD int border_class(int i, int size) { return i == 0 ? 0 : i == size - 1 ? 2 : 1; }
TANDEM_HD bool lies_inside(int moved, int border) { return moved > 0 ? border != 0 : moved < 0 ? border != 2 : true; }

// From the sums of products of each border class, [3][3][3][64], that of x[p + tap a] x[p + tap b] over all places p;
// b < 0: of x[p + tap a].
TANDEM_HD double tap_lag_sum(const double* sums, int a, int b) {
  TapOffset from = tap_offset(a);
  int lag = kPlainSum;
  if (b >= 0) {
    TapOffset to = tap_offset(b), d{to.t - from.t, to.h - from.h, to.w - from.w};
    if (!comes_later(d)) {
      from = to;
      d = {-d.t, -d.h, -d.w};
    }
    lag = lag_number(d);
  }
  double sum = 0;
  for (int t = 0; t < 3; ++t)
    for (int h = 0; h < 3; ++h)
      for (int w = 0; w < 3; ++w)
        if (lies_inside(from.t, t) && lies_inside(from.h, h) && lies_inside(from.w, w))
          sum = sum + sums[((t * 3 + h) * 3 + w) * kLags + lag];
  return sum;
}

// ---- tiles of the products: 8 rows and 128 columns, all times of a clip. A lane's chain: its columns w, w + 32 ... of
// row after row of one border class; lanes are halved, frames added in double. Tiles are added by 32 lanes, halved.
// ----
inline constexpr int kLagRows = 8, kLagColumns = 128, kLagLanes = 32;
TANDEM_HD int lag_tiles_across(const FirstBlockShape& s) { return (s.width + kLagColumns - 1) / kLagColumns; }
TANDEM_HD int lag_tiles(const FirstBlockShape& s) { return (s.height + kLagRows - 1) / kLagRows * lag_tiles_across(s); }

// ---- tiles of outputs: 8 x 16 of one frame. Gradients: a block takes a tile through 4 frames; output i of a tile
// belongs to warp i % 8, whose chain runs frame by frame; warps are added in order, blocks by 32 lanes in double. ----
inline constexpr int kOutputRows = 8, kOutputColumns = 16, kTileOutputs = kOutputRows * kOutputColumns;
inline constexpr int kGradientFrames = 4, kGradientWarps = 8, kGradientSums = kTaps + 1;
TANDEM_HD int output_tiles_across(const FirstBlockShape& s) {
  return (s.out_w() + kOutputColumns - 1) / kOutputColumns;
}
TANDEM_HD int output_tiles(const FirstBlockShape& s) {
  return (s.out_h() + kOutputRows - 1) / kOutputRows * output_tiles_across(s);
}
TANDEM_HD int gradient_blocks(const FirstBlockShape& s) {  // of a clip
  return (s.time + kGradientFrames - 1) / kGradientFrames * output_tiles(s);
}

// ---- in double ----
struct TapMoments {
  double mean, variance;
};
TANDEM_HD TapMoments tap_moments(const FirstBlockShape& s, const double* sums, const float* weight) {
  const double count = static_cast<double>(s.places());
  const double* const singles = sums + kTaps * kTaps;
  double mean = 0, square = 0;
  for (int j = 0; j < kTaps; ++j) {
    double row = 0;
    for (int k = 0; k < kTaps; ++k) {
      const double covariance = sums[j * kTaps + k] - singles[j] * (singles[k] / count);
      row = row + static_cast<double>(weight[k]) * covariance;
    }
    square = square + static_cast<double>(weight[j]) * row;
    mean = mean + static_cast<double>(weight[j]) * singles[j];
  }
  const double variance = square / count;
  return {mean / count, variance > 0 ? variance : variance != variance ? variance : 0};
}

// `gradients`: those of this channel, kGradientSums of them, `channels` apart.
TANDEM_HD double scale_gradient(const double* gradients, int channels, const float* weight, float mean, float inv_std) {
  double sum = 0;
  for (int k = 0; k < kTaps; ++k) sum = sum + static_cast<double>(weight[k]) * gradients[k * channels];
  return static_cast<double>(inv_std) * (sum - static_cast<double>(mean) * gradients[kTaps * channels]);
}
TANDEM_HD double tap_gradient(const FirstBlockShape& s, const double* sums, const double* gradients, int channels,
                              const float* weight, int tap, float mean, float inv_std, float scale, double of_scale) {
  const double count = static_cast<double>(s.places()), single = sums[kTaps * kTaps + tap];
  double crossed = 0;  // of the convolution's output and x at this tap
  for (int j = 0; j < kTaps; ++j) crossed = crossed + static_cast<double>(weight[j]) * sums[tap * kTaps + j];
  const double centred = crossed - static_cast<double>(mean) * single;
  const double through = gradients[tap * channels] - gradients[kTaps * channels] / count * single;
  return static_cast<double>(scale) * static_cast<double>(inv_std) *
         (through - of_scale / count * static_cast<double>(inv_std) * centred);
}

}  // namespace tandem
