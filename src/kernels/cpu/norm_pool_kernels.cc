#include "kernels/norm_pool_kernels.h"

#include <algorithm>

#include "kernels/cpu/norm_lanes.h"
#include "kernels/norm_pool_math.h"

namespace tandem {
namespace {

constexpr int kGroup = kTileChannels;

// What the loops over channels need, 0 beyond the last one.
struct PoolTerms {
  float mean[kGroup]{}, scale[kGroup]{}, bias[kGroup]{}, mean_grad[kGroup]{}, slope[kGroup]{};

  TANDEM_HD PoolTerms(const NormPoolShape& s, const NormPoolKernels::Given& given, int shard, int64_t channel,
                      int channels) {
    for (int c = 0; c < channels; ++c) {
      const int64_t i = shard * s.channels + channel + c;
      mean[c] = given.mean[i];
      scale[c] = given.inv_std[i] * given.weight[channel + c];
      bias[c] = given.bias[channel + c];
    }
  }
};

// body(shard, channel, channels) for every group of channels of every shard.
template <typename Body>
void for_each_group(const NormPoolShape& s, const Body& body) {
  for (int shard = 0; shard < s.shards; ++shard)
    for (int64_t channel = 0; channel < s.channels; channel += kGroup)
      run_variant(best_cpu_variant(), [&]() TANDEM_INLINE_LAMBDA {
        body(shard, channel, static_cast<int>(std::min<int64_t>(kGroup, s.channels - channel)));
      });
}

TANDEM_HD void write_codes(const uint32_t (&codes)[kGroup], uint32_t* to) {
  for (int word = 0; word < kGroup / 8; ++word) {
    uint32_t packed = 0;
    for (int i = 0; i < 8; ++i) packed |= codes[8 * word + i] << 4 * i;
    to[word] = packed;
  }
}
TANDEM_HD void read_codes(const uint32_t* from, int words, uint32_t (&codes)[kGroup]) {
  for (int c = 0; c < kGroup; ++c) codes[c] = c / 8 < words ? code_of_channel(from[c / 8], c) : 0;
}

template <FloatType kType>
void pool_normed(const NormPoolShape& s, const NormPoolKernels::Given& given, void* y, uint32_t* codes) {
  for_each_group(s, [&](int shard, int64_t channel, int channels) TANDEM_INLINE_LAMBDA {
    const PoolTerms terms(s, given, shard, channel, channels);
    const unsigned boxes = static_cast<unsigned>(boxes_of_clip(s, false));
    const int words = (channels + 7) / 8;
    for (int64_t clip = shard * s.clips; clip < (shard + 1) * s.clips; ++clip)
      for (unsigned number = 0; number < boxes; ++number) {
        const PoolBox box = pool_box(s, clip, number, false);
        float best[kGroup] = {}, value[kGroup];
        uint32_t place[kGroup] = {};
        for (int inside = 0; inside < s.box_places(); ++inside) {
          read_channels<kType>(value, given.x, place_in(s, box, inside) * s.channels + channel, channels);
          TANDEM_INDEPENDENT
          for (int c = 0; c < kGroup; ++c)
            take_larger(normalised(value[c], terms.mean[c], terms.scale[c], terms.bias[c]), inside, best[c], place[c]);
        }
        TANDEM_INDEPENDENT
        for (int c = 0; c < kGroup; ++c) {
          place[c] = pool_code(best[c], place[c]);
          best[c] = relu_of(best[c]);
        }
        const int64_t out = place_out(s, box);
        write_channels<kType>(best, y, out * s.channels + channel, channels);
        uint32_t packed[kGroup / 8];
        write_codes(place, packed);
        std::copy_n(packed, words, codes + out * s.code_words() + channel / 8);
      }
  });
}

template <FloatType kType>
void pooled_sums(const NormPoolShape& s, const NormPoolKernels::Given& given, const void* y_grad, const uint32_t* codes,
                 float* scratch) {
  const BatchNormShape outputs = s.outputs();
  for_each_group(s, [&](int shard, int64_t channel, int channels) TANDEM_INLINE_LAMBDA {
    const PoolTerms terms(s, given, shard, channel, channels);
    NormLanes lanes;
    for (int64_t block = 0; block < moment_blocks(outputs.rows); ++block) {
      const int rows = static_cast<int>(std::min<int64_t>(kMomentBlock, outputs.rows - block * kMomentBlock));
      for (int lane = 0; lane < kMomentLanes; ++lane) lanes[lane] = {};
      for (int row = 0; row < rows; ++row) {
        const int64_t of_shard = block * kMomentBlock + row, out = shard * outputs.rows + of_shard;
        const PoolBox box = pool_box(s, shard * s.clips + of_shard / s.clip_out(),
                                     static_cast<unsigned>(of_shard % s.clip_out()), false);
        float gradient[kGroup], x[kGroup] = {}, value[kGroup];
        uint32_t code[kGroup];
        read_channels<kType>(gradient, y_grad, out * s.channels + channel, channels);
        read_codes(codes + out * s.code_words() + channel / 8, (channels + 7) / 8, code);
        for (int inside = 0; inside < s.box_places(); ++inside) {
          read_channels<kType>(value, given.x, place_in(s, box, inside) * s.channels + channel, channels);
          TANDEM_INDEPENDENT
          for (int c = 0; c < kGroup; ++c) x[c] = (code[c] & 7) == static_cast<uint32_t>(inside) ? value[c] : x[c];
        }
        ChannelPairs& sums = lanes[row % kMomentLanes];
        TANDEM_INDEPENDENT
        for (int c = 0; c < kGroup; ++c) {
          const float counted = code[c] & kPoolAlive ? gradient[c] : 0.0f;
          sums.first[c] = sums.first[c] + counted * (x[c] - terms.mean[c]);
          sums.second[c] = sums.second[c] + counted;
        }
      }
      merge_lanes_of_block<MergeSums>(lanes, rows);
      store_pairs(outputs, scratch, shard, block, channel, channels, lanes);
    }
  });
}

template <FloatType kType>
void unpool_gradient(const NormPoolShape& s, const NormPoolKernels::Given& given, const void* y_grad,
                     const uint32_t* codes, const float* weight_leaves, const float* bias_leaves, void* x_grad) {
  const int64_t rows = s.inputs().rows;
  for_each_group(s, [&](int shard, int64_t channel, int channels) TANDEM_INLINE_LAMBDA {
    PoolTerms terms(s, given, shard, channel, channels);
    for (int c = 0; c < channels; ++c) {
      const int64_t i = shard * s.channels + channel + c;
      const BackwardTerms found = backward_terms(given.mean[i], given.inv_std[i], given.weight[channel + c],
                                                 weight_leaves[i], bias_leaves[i], rows);
      terms.mean_grad[c] = found.mean_grad;
      terms.slope[c] = found.slope;
    }
    const unsigned boxes = static_cast<unsigned>(boxes_of_clip(s, true));
    for (int64_t clip = shard * s.clips; clip < (shard + 1) * s.clips; ++clip)
      for (unsigned number = 0; number < boxes; ++number) {
        const PoolBox box = pool_box(s, clip, number, true);
        float gradient[kGroup] = {}, value[kGroup];
        uint32_t code[kGroup] = {};
        if (box.whole) {
          const int64_t out = place_out(s, box);
          read_channels<kType>(gradient, y_grad, out * s.channels + channel, channels);
          read_codes(codes + out * s.code_words() + channel / 8, (channels + 7) / 8, code);
        }
        for (int inside = 0; inside < s.box_places(); ++inside) {
          const int64_t in = place_in(s, box, inside);
          if (in < 0) continue;
          read_channels<kType>(value, given.x, in * s.channels + channel, channels);
          TANDEM_INDEPENDENT
          for (int c = 0; c < kGroup; ++c) {
            const float here = code[c] == (static_cast<uint32_t>(inside) | kPoolAlive) ? gradient[c] : 0.0f;
            value[c] = norm_x_grad(here, value[c], {terms.mean[c], terms.scale[c], terms.mean_grad[c], terms.slope[c]});
          }
          write_channels<kType>(value, x_grad, in * s.channels + channel, channels);
        }
      }
  });
}

// call.operator()<type>()
template <typename Call>
void with_norm_pool_type(FloatType type, const Call& call) {
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

const NormPoolKernels& NormPoolKernels::cpu() {
  static const NormPoolKernels kernels{
      .forward =
          [](const NormPoolShape& s, const Given& given, void* y, uint32_t* codes, void*) {
            with_norm_pool_type(s.type, [&]<FloatType kType>() { pool_normed<kType>(s, given, y, codes); });
          },
      .backward_sums =
          [](const NormPoolShape& s, const Given& given, const void* y_grad, const uint32_t* codes,
             float* weight_leaves, float* bias_leaves, float* scratch, void*) {
            with_norm_pool_type(s.type,
                                [&]<FloatType kType>() { pooled_sums<kType>(s, given, y_grad, codes, scratch); });
            merge_blocks<MergeSums>(s.outputs(), scratch, [&](int64_t i, float weighted, float sum) {
              weight_leaves[i] = weighted * given.inv_std[i];
              bias_leaves[i] = sum;
            });
          },
      .backward =
          [](const NormPoolShape& s, const Given& given, const void* y_grad, const uint32_t* codes,
             const float* weight_leaves, const float* bias_leaves, void* x_grad, void*) {
            with_norm_pool_type(s.type, [&]<FloatType kType>() {
              unpool_gradient<kType>(s, given, y_grad, codes, weight_leaves, bias_leaves, x_grad);
            });
          }};
  return kernels;
}

}  // namespace tandem
