// kernels/cpu/norm_lanes.h -- sums over the rows of each channel in the order of kernels/batch_norm_kernels.h: 32 lanes
// over blocks of 256 rows, halved, then 32 lanes over the blocks. For the .cc files of batch norm.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/batch_norm_kernels.h"
#include "kernels/batch_norm_math.h"
#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/float_bits.h"

namespace tandem {

inline constexpr int kTileChannels = 32;  // a tile of 256 rows is 32 kB, two cache lines of a row

using NormTile = float[kMomentBlock][kTileChannels];

// Loops over the tile's channels have a constant length wherever they can: they become a few vector instructions.
template <FloatType kType>
TANDEM_HD void read_channels(float* to, const void* data, int64_t from, int channels) {
  if (channels == kTileChannels) {
    TANDEM_INDEPENDENT
    for (int c = 0; c < kTileChannels; ++c) to[c] = load_float(data, kType, from + c);
  } else {
    for (int c = 0; c < kTileChannels; ++c) to[c] = c < channels ? load_float(data, kType, from + c) : 0.0f;
  }
}
template <FloatType kType>
TANDEM_HD void write_channels(const float* from, void* data, int64_t to, int channels) {
  if (channels == kTileChannels) {
    TANDEM_INDEPENDENT
    for (int c = 0; c < kTileChannels; ++c) store_float(data, kType, to + c, from[c]);
  } else {
    for (int c = 0; c < channels; ++c) store_float(data, kType, to + c, from[c]);
  }
}

// Two numbers for each channel: moments, or the two sums of backward.
struct ChannelPairs {
  float first[kTileChannels], second[kTileChannels];
};
using NormLanes = ChannelPairs[kMomentLanes];

// merge(a, b, rows of a, rows of b): a takes b in. Never called for lanes without rows.
struct MergeMoments {
  TANDEM_HD static void merge(ChannelPairs& a, const ChannelPairs& b, int64_t count_a, int64_t count_b) {
    const MomentWeights weights = moment_weights(count_a, count_b);
    TANDEM_INDEPENDENT
    for (int c = 0; c < kTileChannels; ++c) {
      const ChannelMoments sum = merged({a.first[c], a.second[c]}, {b.first[c], b.second[c]}, weights);
      a.first[c] = sum.mean;
      a.second[c] = sum.squares;
    }
  }
};
struct MergeSums {
  TANDEM_HD static void merge(ChannelPairs& a, const ChannelPairs& b, int64_t, int64_t) {
    TANDEM_INDEPENDENT
    for (int c = 0; c < kTileChannels; ++c) {
      a.first[c] = a.first[c] + b.first[c];
      a.second[c] = a.second[c] + b.second[c];
    }
  }
};

// rows(lane, lanes): the rows of a lane where there are so many.
template <typename Merge, typename Rows>
TANDEM_HD void halve_lanes(NormLanes& lanes, const Rows& rows) {
  for (int half = kMomentLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      if (const int64_t other = rows(lane + half, 2 * half); other > 0)
        Merge::merge(lanes[lane], lanes[lane + half], rows(lane, 2 * half), other);
}

template <typename Merge>
TANDEM_HD void merge_lanes_of_block(NormLanes& lanes, int rows) {
  halve_lanes<Merge>(lanes, [=](int lane, int of) TANDEM_INLINE_LAMBDA { return rows_of_lane(rows, lane, of); });
}

// The blocks' pairs in scratch [shards][2][blocks][channels] to one pair per shard and channel.
template <typename Merge, typename Write>
TANDEM_HD void merge_blocks(const BatchNormShape& s, const float* scratch, const Write& write) {
  const int64_t blocks = moment_blocks(s.rows), plane = blocks * s.channels;
  const int used = static_cast<int>(std::min<int64_t>(kMomentLanes, blocks));
  NormLanes lanes;
  ChannelPairs next;
  for (int shard = 0; shard < s.shards; ++shard)
    for (int64_t channel = 0; channel < s.channels; channel += kTileChannels) {
      const int channels = static_cast<int>(std::min<int64_t>(kTileChannels, s.channels - channel));
      const float* const from = scratch + 2 * shard * plane + channel;
      for (int lane = 0; lane < used; ++lane)
        for (int64_t block = lane; block < blocks; block += kMomentLanes) {
          ChannelPairs& to = block == lane ? lanes[lane] : next;
          read_channels<FloatType::kFloat>(to.first, from, block * s.channels, channels);
          read_channels<FloatType::kFloat>(to.second, from + plane, block * s.channels, channels);
          if (block > lane)
            Merge::merge(lanes[lane], next, (block - lane) / kMomentLanes * kMomentBlock,
                         std::min<int64_t>(kMomentBlock, s.rows - block * kMomentBlock));
        }
      if (blocks > 1)
        halve_lanes<Merge>(lanes,
                           [&](int lane, int of) TANDEM_INLINE_LAMBDA { return rows_of_block_lane(s.rows, lane, of); });
      for (int c = 0; c < channels; ++c) write(shard * s.channels + channel + c, lanes[0].first[c], lanes[0].second[c]);
    }
}

TANDEM_HD void store_pairs(const BatchNormShape& s, float* scratch, int shard, int64_t block, int64_t channel,
                           int channels, const NormLanes& lanes) {
  float* const to = scratch + (2 * shard * moment_blocks(s.rows) + block) * s.channels + channel;
  std::copy_n(lanes[0].first, channels, to);
  std::copy_n(lanes[0].second, channels, to + moment_blocks(s.rows) * s.channels);
}

}  // namespace tandem
