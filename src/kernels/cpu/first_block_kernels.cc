#include "kernels/first_block_kernels.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/first_block_math.h"
#include "kernels/float_bits.h"

namespace tandem {
namespace {

constexpr int kWide = 32;  // channels, or lanes, of a loop that becomes a few vector instructions

// One clip as floats with zeros around: 2 before and after in height and width, 1 before and 2 after in time, and the
// last tile's columns.
class PaddedClip {
 public:
  PaddedClip(const FirstBlockShape& s)
      : shape_(s),
        pitch_(lag_tiles_across(s) * kLagColumns + 4),
        plane_(int64_t{s.height + 4 + kLagRows} * pitch_),
        values_(static_cast<size_t>(plane_ * (s.time + 3))) {
    for (int k = 0; k < kTaps; ++k) {
      const TapOffset d = tap_offset(k);
      taps_[k] = d.t * plane_ + d.h * pitch_ + d.w;
    }
  }
  void read(const void* x, int64_t clip) {
    for (int t = 0; t < shape_.time; ++t)
      for (int h = 0; h < shape_.height; ++h) {
        const int64_t from = ((clip * shape_.time + t) * shape_.height + h) * shape_.width;
        float* const to = at(t, h, 0);
        for (int w = 0; w < shape_.width; ++w) to[w] = load_float(x, shape_.type, from + w);
      }
  }
  float* at(int t, int h, int w) { return values_.data() + (t + 1) * plane_ + int64_t{h + 2} * pitch_ + w + 2; }
  int64_t plane() const { return plane_; }
  int64_t pitch() const { return pitch_; }
  const int64_t* taps() const { return taps_; }  // from a place to those that its taps see

 private:
  FirstBlockShape shape_;
  int64_t pitch_, plane_;
  std::vector<float> values_;
  int64_t taps_[kTaps];
};

TANDEM_HD float halved(float (&lanes)[kWide]) {
  for (int half = kWide / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}
// Rows [first, last) of one border class, all of one tile and frame: the sums of the columns between the borders, of
// the first and of the last one, for one product.
TANDEM_HD void add_lags(const FirstBlockShape& s, PaddedClip& clip, int t, int first, int last, int top, int left,
                        int lag, double* sums) {
  const TapOffset d = lag == kPlainSum ? TapOffset{0, 0, 0} : lag_offset(lag);
  const int64_t apart = d.t * clip.plane() + d.h * clip.pitch() + d.w;
  float lanes[kWide] = {}, one[kWide];
  for (int h = first; h < last; ++h)
    for (int column = left; column < std::min(left + kLagColumns, s.width); column += kWide) {
      const float* const x = clip.at(t, h, column);
      const int from = std::max(0, 1 - column), to = std::min(kWide, s.width - 1 - column);  // between the borders
      for (int lane = 0; lane < kWide; ++lane) one[lane] = lane >= from && lane < to ? x[lane] : 0.0f;
      if (lag == kPlainSum) {
        for (int lane = 0; lane < kWide; ++lane) lanes[lane] = __builtin_fmaf(one[lane], 1.0f, lanes[lane]);
      } else {
        for (int lane = 0; lane < kWide; ++lane) lanes[lane] = __builtin_fmaf(one[lane], x[apart + lane], lanes[lane]);
      }
    }
  sums[kLags] = sums[kLags] + static_cast<double>(halved(lanes));
  for (const int border : {0, 2}) {
    const int column = border == 0 ? 0 : s.width - 1;
    if (column < left || column >= left + kLagColumns) continue;
    std::fill_n(lanes, kWide, 0.0f);
    for (int h = first; h < last; ++h) {
      const float* const x = clip.at(t, h, column);
      lanes[h - top] = __builtin_fmaf(*x, lag == kPlainSum ? 1.0f : x[apart], 0.0f);
    }
    sums[border * kLags] = sums[border * kLags] + static_cast<double>(halved(lanes));
  }
}

// [3][3][3][64] of one tile of a clip.
TANDEM_HD void sum_lags(const FirstBlockShape& s, PaddedClip& clip, int tile, double* sums) {
  std::fill_n(sums, kLagSums, 0.0);
  const int top = tile / lag_tiles_across(s) * kLagRows, left = tile % lag_tiles_across(s) * kLagColumns;
  const int bottom = std::min(top + kLagRows, s.height);
  for (int t = 0; t < s.time; ++t)
    for (int border = 0; border < 3; ++border) {
      const int first = border == 0 ? top : border == 2 ? std::max(top, s.height - 1) : std::max(top, 1);
      const int last = border == 0 ? std::min(bottom, 1) : border == 2 ? bottom : std::min(bottom, s.height - 1);
      if (first >= last) continue;
      double* const to = sums + (border_class(t, s.time) * 3 + border) * 3 * kLags;
      for (int lag = 0; lag < kLags; ++lag) add_lags(s, clip, t, first, last, top, left, lag, to + lag);
    }
}

// rows [count][n] to their sum, by 32 lanes.
template <typename T>
void add_by_lanes(const T* rows, int64_t count, int64_t n, double* sums) {
  std::vector<double> lanes(static_cast<size_t>(kWide * n));
  const auto add = [&](double* to, const auto* from) {
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] + static_cast<double>(from[i]);
  };
  for (int64_t row = 0; row < count; ++row) add(lanes.data() + row % kWide * n, rows + row * n);
  for (int half = kWide / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) add(lanes.data() + lane * n, lanes.data() + (lane + half) * n);
  std::copy_n(lanes.data(), n, sums);
}

void all_tap_sums(const FirstBlockShape& s, const void* x, double* sums, double* scratch, void*) {
  PaddedClip clip(s);
  const int tiles = lag_tiles(s);
  std::vector<double> lags(kLagSums);
  for (int shard = 0; shard < s.shards; ++shard) {
    for (int64_t of_shard = 0; of_shard < s.clips; ++of_shard) {
      clip.read(x, shard * s.clips + of_shard);
      run_with_fma([&]() TANDEM_INLINE_LAMBDA {
        for (int tile = 0; tile < tiles; ++tile)
          sum_lags(s, clip, tile, scratch + (of_shard * tiles + tile) * kLagSums);
      });
    }
    add_by_lanes(scratch, s.clips * tiles, kLagSums, lags.data());
    double* const to = sums + shard * kTapSums;
    for (int a = 0; a < kTaps; ++a) {
      for (int b = 0; b < kTaps; ++b) to[a * kTaps + b] = tap_lag_sum(lags.data(), a, b);
      to[kTaps * kTaps + a] = tap_lag_sum(lags.data(), a, -1);
    }
  }
}

void tap_statistics(const FirstBlockShape& s, const double* sums, const float* weight, float eps, float share,
                    float* mean, float* inv_std, float* mean_leaves, float* var_leaves, void*) {
  for (int shard = 0; shard < s.shards; ++shard)
    for (int c = 0; c < s.channels; ++c) {
      const TapMoments found = tap_moments(s, sums + shard * kTapSums, weight + c * kTaps);
      const int i = shard * s.channels + c;
      mean[i] = static_cast<float>(found.mean);
      const ChannelStatistics statistics =
          channel_statistics(static_cast<float>(found.variance * static_cast<double>(s.places())), s.places(), eps);
      inv_std[i] = statistics.inv_std;
      if (mean_leaves) mean_leaves[i] = mean[i] * share;
      if (var_leaves) var_leaves[i] = statistics.unbiased_variance * share;
    }
}

// kWide channels of the norm, and the weights [27][kWide].
struct BlockTerms {
  float weight[kTaps][kWide] = {}, mean[kWide] = {}, scale[kWide] = {}, shift[kWide] = {};
  BlockTerms(const FirstBlockShape& s, const FirstBlockKernels::Norm& norm, int shard, int channel) {
    for (int c = 0; c < std::min(kWide, s.channels - channel); ++c) {
      for (int k = 0; k < kTaps; ++k) weight[k][c] = norm.weight[(channel + c) * kTaps + k];
      mean[c] = norm.mean[shard * s.channels + channel + c];
      scale[c] = norm.inv_std[shard * s.channels + channel + c] * norm.scale[channel + c];
      shift[c] = norm.shift[channel + c];
    }
  }
};

// The four convolutions of a window.
TANDEM_HD void convolve_window(const BlockTerms& terms, const PaddedClip& clip, const float* x,
                               float (&sums)[4][kWide]) {
  for (int p = 0; p < 4; ++p) std::fill_n(sums[p], kWide, 0.0f);
  for (int k = 0; k < kTaps; ++k) {
    const float* const row = x + clip.taps()[k];
    const float *const w = terms.weight[k], in[4] = {row[0], row[1], row[clip.pitch()], row[clip.pitch() + 1]};
    for (int p = 0; p < 4; ++p) TANDEM_INDEPENDENT
    for (int c = 0; c < kWide; ++c) sums[p][c] = __builtin_fmaf(w[c], in[p], sums[p][c]);
  }
}

template <FloatType kType>
void first_forward(const FirstBlockShape& s, const void* x, const FirstBlockKernels::Norm& norm, void* y,
                   uint32_t* codes) {
  PaddedClip clip(s);
  for (int shard = 0; shard < s.shards; ++shard)
    for (int64_t number = shard * s.clips; number < (shard + 1) * s.clips; ++number) {
      clip.read(x, number);
      for (int channel = 0; channel < s.channels; channel += kWide) {
        const BlockTerms terms(s, norm, shard, channel);
        const int channels = std::min(kWide, s.channels - channel);
        run_with_fma([&]() TANDEM_INLINE_LAMBDA {
          int64_t out = number * s.clip_out();
          for (int t = 0; t < s.time; ++t)
            for (int h = 0; h < s.out_h(); ++h)
              for (int w = 0; w < s.out_w(); ++w, ++out) {
                float sums[4][kWide], best[kWide] = {};
                uint32_t code[kWide] = {};
                convolve_window(terms, clip, clip.at(t, 2 * h, 2 * w), sums);
                for (int p = 0; p < 4; ++p) TANDEM_INDEPENDENT
                for (int c = 0; c < kWide; ++c)
                  take_larger(normalised(sums[p][c], terms.mean[c], terms.scale[c], terms.shift[c]), p, best[c],
                              code[c]);
                TANDEM_INDEPENDENT
                for (int c = 0; c < kWide; ++c) {
                  code[c] = pool_code(best[c], code[c]);
                  best[c] = relu_of(best[c]);
                }
                for (int c = 0; c < channels; ++c) store_float(y, kType, out * s.channels + channel + c, best[c]);
                for (int word = 0; word < (channels + 7) / 8; ++word) {
                  uint32_t packed = 0;
                  for (int i = 0; i < 8; ++i)
                    if (8 * word + i < channels) packed |= code[8 * word + i] << 4 * i;
                  codes[out * s.code_words() + channel / 8 + word] = packed;
                }
              }
        });
      }
    }
}

using GradientChains = float[kGradientSums][kWide];

// One warp's outputs of a tile in one frame, kWide channels from `channel` on.
template <FloatType kType>
TANDEM_HD void add_outputs(const FirstBlockShape& s, PaddedClip& clip, int64_t number, int t, int tile, int warp,
                           int channel, const void* y_grad, const uint32_t* codes, GradientChains& chains) {
  const int channels = std::min(kWide, s.channels - channel);
  const int top = tile / output_tiles_across(s) * kOutputRows, left = tile % output_tiles_across(s) * kOutputColumns;
  for (int i = warp; i < kTileOutputs; i += kGradientWarps) {
    const int h = top + i / kOutputColumns, w = left + i % kOutputColumns;
    if (h >= s.out_h() || w >= s.out_w()) continue;
    const int64_t out = ((number * s.time + t) * s.out_h() + h) * s.out_w() + w;
    float gradient[kWide] = {};
    uint32_t code[kWide] = {};
    for (int word = 0; word < (channels + 7) / 8; ++word) {
      const uint32_t packed = codes[out * s.code_words() + channel / 8 + word];
      for (int i = 0; i < 8; ++i) code[8 * word + i] = packed >> 4 * i & 15u;
    }
    for (int c = 0; c < channels; ++c) gradient[c] = load_float(y_grad, kType, out * s.channels + channel + c);
    TANDEM_INDEPENDENT
    for (int c = 0; c < kWide; ++c) gradient[c] = code[c] & kPoolAlive ? gradient[c] : 0.0f;
    for (uint32_t p = 0; p < 4; ++p) {
      float here[kWide];
      TANDEM_INDEPENDENT
      for (int c = 0; c < kWide; ++c) here[c] = (code[c] & 7) == p ? gradient[c] : 0.0f;
      const float* const x = clip.at(t, 2 * h + static_cast<int>(p / 2), 2 * w + static_cast<int>(p % 2));
      for (int k = 0; k < kTaps; ++k) {
        const float in = x[clip.taps()[k]];
        TANDEM_INDEPENDENT
        for (int c = 0; c < kWide; ++c) chains[k][c] = __builtin_fmaf(here[c], in, chains[k][c]);
      }
    }
    for (int c = 0; c < kWide; ++c) chains[kTaps][c] = chains[kTaps][c] + gradient[c];
  }
}

template <FloatType kType>
void first_gradients(const FirstBlockShape& s, const void* x, const void* y_grad, const uint32_t* codes,
                     double* gradients, double* scratch) {
  PaddedClip clip(s);
  float* const rows = reinterpret_cast<float*>(scratch);
  const int blocks = gradient_blocks(s), tiles = output_tiles(s);
  const int64_t n = int64_t{kGradientSums} * s.channels;
  for (int shard = 0; shard < s.shards; ++shard) {
    for (int64_t of_shard = 0; of_shard < s.clips; ++of_shard) {
      const int64_t number = shard * s.clips + of_shard;
      clip.read(x, number);
      run_with_fma([&]() TANDEM_INLINE_LAMBDA {
        for (int block = 0; block < blocks; ++block)
          for (int channel = 0; channel < s.channels; channel += kWide) {
            GradientChains sums, chains;
            for (int warp = 0; warp < kGradientWarps; ++warp) {
              GradientChains& own = warp == 0 ? sums : chains;
              for (int k = 0; k < kGradientSums; ++k) std::fill_n(own[k], kWide, 0.0f);
              const int first = block / tiles * kGradientFrames;
              for (int t = first; t < std::min(first + kGradientFrames, s.time); ++t)
                add_outputs<kType>(s, clip, number, t, block % tiles, warp, channel, y_grad, codes, own);
              for (int k = 0; k < kGradientSums && warp > 0; ++k)
                for (int c = 0; c < kWide; ++c) sums[k][c] = sums[k][c] + chains[k][c];
            }
            float* const to = rows + (of_shard * blocks + block) * n + channel;
            for (int k = 0; k < kGradientSums; ++k)
              std::copy_n(sums[k], std::min(kWide, s.channels - channel), to + k * s.channels);
          }
      });
    }
    add_by_lanes(rows, s.clips * blocks, n, gradients + shard * n);
  }
}

void first_leaves(const FirstBlockShape& s, const double* sums, const double* gradients,
                  const FirstBlockKernels::Norm& norm, float* weight_leaves, float* scale_leaves, float* shift_leaves,
                  void*) {
  for (int shard = 0; shard < s.shards; ++shard)
    for (int c = 0; c < s.channels; ++c) {
      const double* const own = gradients + int64_t{shard} * kGradientSums * s.channels + c;
      const float* const weight = norm.weight + c * kTaps;
      const int i = shard * s.channels + c;
      const double of_scale = scale_gradient(own, s.channels, weight, norm.mean[i], norm.inv_std[i]);
      for (int k = 0; k < kTaps; ++k)
        weight_leaves[i * kTaps + k] =
            static_cast<float>(tap_gradient(s, sums + shard * kTapSums, own, s.channels, weight, k, norm.mean[i],
                                            norm.inv_std[i], norm.scale[c], of_scale));
      scale_leaves[i] = static_cast<float>(of_scale);
      shift_leaves[i] = static_cast<float>(own[kTaps * s.channels]);
    }
}

// call.operator()<type>()
template <typename Call>
void with_block_type(FloatType type, const Call& call) {
  switch (type) {
    case FloatType::kFloat:
      return call.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return call.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return call.template operator()<FloatType::kHalf>();
  }
}

}  // namespace

int64_t first_block_scratch(const FirstBlockShape& s) {
  const int64_t clips = s.shards * s.clips;
  return std::max((clips * lag_tiles(s) + s.shards) * kLagSums,
                  (clips * gradient_blocks(s) * kGradientSums * s.channels + 1) / 2);
}

const FirstBlockKernels& FirstBlockKernels::cpu() {
  static const FirstBlockKernels kernels{
      .tap_sums = all_tap_sums,
      .statistics = tap_statistics,
      .forward =
          [](const FirstBlockShape& s, const void* x, const Norm& norm, void* y, uint32_t* codes, void*) {
            with_block_type(s.type, [&]<FloatType kType>() { first_forward<kType>(s, x, norm, y, codes); });
          },
      .gradient_sums =
          [](const FirstBlockShape& s, const void* x, const void* y_grad, const uint32_t* codes, double* gradients,
             double* scratch, void*) {
            with_block_type(
                s.type, [&]<FloatType kType>() { first_gradients<kType>(s, x, y_grad, codes, gradients, scratch); });
          },
      .leaves = first_leaves};
  return kernels;
}

}  // namespace tandem
