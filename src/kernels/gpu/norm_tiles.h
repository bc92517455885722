// kernels/gpu/norm_tiles.h -- sums over the rows of each channel on a GPU, in the order of
// kernels/batch_norm_kernels.h.
//
// A block of 256 threads has a tile of 256 rows and 64 channels of one shard: a thread has 8 channels of 8 rows (one
// lane of the sums), 16 bytes of bf16 per row.
#pragma once

#include "kernels/batch_norm_kernels.h"
#include "kernels/batch_norm_math.h"
#include "kernels/gpu/intrinsics.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/typed_vectors.h"

namespace tandem::cuda {

inline constexpr int kGroups = 8, kTileChannels = kGroups * kVector;  // of 8 channels each
static_assert(kMomentLanes * kGroups == kThreads);

// This thread's part of a tile.
template <bool kChannelsLast>
struct NormThread {
  int shard, lane, rows;  // rows: of its lane
  int tile_rows;
  int64_t block, row, channel;  // row: its first one in the shard; the next ones are 32 apart
  int channels, local;          // of the 8, those that exist; local: its first channel in the tile

  __device__ explicit NormThread(const BatchNormShape& s) {
    const int64_t tiles = (s.channels + kTileChannels - 1) / kTileChannels;
    const int group = static_cast<int>(kChannelsLast ? threadIdx.x % kGroups : threadIdx.x / kMomentLanes);
    lane = static_cast<int>(kChannelsLast ? threadIdx.x / kGroups : threadIdx.x % kMomentLanes);
    shard = static_cast<int>(blockIdx.y);
    block = blockIdx.x / tiles;  // neighbouring blocks have neighbouring channels: the same DRAM pages
    local = group * kVector;
    channel = blockIdx.x % tiles * kTileChannels + local;
    channels = static_cast<int>(max(int64_t{0}, min(int64_t{kVector}, s.channels - channel)));
    tile_rows = static_cast<int>(min(int64_t{kMomentBlock}, s.rows - block * kMomentBlock));
    rows = static_cast<int>(rows_of_lane(tile_rows, lane, kMomentLanes));
    row = block * kMomentBlock + lane;
  }
  __device__ __forceinline__ int64_t at(const BatchNormShape& s, int k) const {
    const int64_t r = shard * s.rows + row + k * kMomentLanes;
    if constexpr (kChannelsLast) return r * s.channels + channel;
    return (r / s.inner * s.channels + channel) * s.inner + r % s.inner;
  }
};

// Two numbers per lane and channel; row 0 holds the result.
struct SharedPairs {
  float first[kMomentLanes][kTileChannels], second[kMomentLanes][kTileChannels];
};

struct MomentMerge {
  __device__ static void merge(float& a0, float& a1, float b0, float b1, const MomentWeights& weights) {
    const ChannelMoments sum = merged({a0, a1}, {b0, b1}, weights);
    a0 = sum.mean;
    a1 = sum.squares;
  }
  __device__ static MomentWeights weights(int64_t a, int64_t b) { return moment_weights(a, b); }
};
struct SumMerge {
  __device__ static void merge(float& a0, float& a1, float b0, float b1, const MomentWeights&) {
    a0 = a0 + b0;
    a1 = a1 + b1;
  }
  __device__ static MomentWeights weights(int64_t, int64_t) { return {}; }
};

// Lanes halved in shared memory, then lane 0 writes the block's pair: scratch [shards][2][blocks][channels].
template <typename Merge, bool kChannelsLast>
__device__ void reduce_tile(SharedPairs& shared, const BatchNormShape& s, const NormThread<kChannelsLast>& me,
                            const float (&first)[kVector], const float (&second)[kVector], float* scratch) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    shared.first[me.lane][me.local + i] = first[i];
    shared.second[me.lane][me.local + i] = second[i];
  }
  // From here on a thread has one channel at a time: free of bank conflicts.
  const int channel = static_cast<int>(threadIdx.x) % kTileChannels;
  for (int half = kMomentLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int lane = static_cast<int>(threadIdx.x) / kTileChannels; lane < half; lane += kThreads / kTileChannels) {
      const int64_t a = rows_of_lane(me.tile_rows, lane, 2 * half);
      const int64_t b = rows_of_lane(me.tile_rows, lane + half, 2 * half);
      if (b > 0)
        Merge::merge(shared.first[lane][channel], shared.second[lane][channel], shared.first[lane + half][channel],
                     shared.second[lane + half][channel], Merge::weights(a, b));
    }
  }
  // Each thread reads what it wrote itself: lane 0 of its channel.
  const int64_t all = me.channel - me.local + channel;
  if (threadIdx.x < kTileChannels && all < s.channels) {
    const int64_t blocks = moment_blocks(s.rows);
    float* const to = scratch + (2 * me.shard * blocks + me.block) * s.channels + all;
    to[0] = shared.first[0][channel];
    to[blocks * s.channels] = shared.second[0][channel];
  }
}

// 32 channels and 32 lanes over the blocks: the pair of each shard and channel, given to finish(index, first, second).
template <typename Merge, typename Finish>
__global__ void __launch_bounds__(1024) merge_blocks(const BatchNormShape s, const float* scratch, Finish finish) {
  __shared__ float firsts[kMomentLanes][32], seconds[kMomentLanes][32];
  const int lane = static_cast<int>(threadIdx.y), shard = static_cast<int>(blockIdx.y);
  const int64_t channel = int64_t{blockIdx.x} * 32 + threadIdx.x, blocks = moment_blocks(s.rows);
  const bool exists = channel < s.channels;
  const float* const from = scratch + 2 * shard * blocks * s.channels + channel;
  const int64_t second_at = blocks * s.channels;
  float first = 0.0f, second = 0.0f;
  if (exists && lane < blocks) {
    first = from[lane * s.channels];
    second = from[second_at + lane * s.channels];
#pragma unroll 4
    for (int64_t block = lane + kMomentLanes; block < blocks; block += kMomentLanes) {
      const float b0 = from[block * s.channels], b1 = from[second_at + block * s.channels];
      Merge::merge(first, second, b0, b1,
                   Merge::weights((block - lane) / kMomentLanes * kMomentBlock,
                                  min(int64_t{kMomentBlock}, s.rows - block * kMomentBlock)));
    }
  }
  firsts[lane][threadIdx.x] = first;
  seconds[lane][threadIdx.x] = second;
  for (int half = kMomentLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) {
      const int64_t b = rows_of_block_lane(s.rows, lane + half, 2 * half);
      if (b > 0)
        Merge::merge(firsts[lane][threadIdx.x], seconds[lane][threadIdx.x], firsts[lane + half][threadIdx.x],
                     seconds[lane + half][threadIdx.x], Merge::weights(rows_of_block_lane(s.rows, lane, 2 * half), b));
    }
  }
  if (lane == 0 && exists) finish(shard * s.channels + channel, firsts[0][threadIdx.x], seconds[0][threadIdx.x]);
}

struct FinishSums {
  const float* inv_std;
  float *weight_leaves, *bias_leaves;
  __device__ void operator()(int64_t i, float weighted, float sum) const {
    weight_leaves[i] = weighted * inv_std[i];
    bias_leaves[i] = sum;
  }
};

// What a thread's 8 channels need.
struct NormTerms8 {
  float mean[kVector], scale[kVector], bias[kVector];
  __device__ NormTerms8(const BatchNormShape& s, int shard, int64_t channel, int channels, const float* means,
                        const float* inv_std, const float* weight, const float* biases) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int64_t all = shard * s.channels + channel + i;
      mean[i] = i < channels ? means[all] : 0.0f;
      scale[i] = i < channels ? inv_std[all] * weight[channel + i] : 0.0f;
      bias[i] = i < channels ? biases[channel + i] : 0.0f;
    }
  }
};

inline dim3 tile_grid(const BatchNormShape& s) {
  const int64_t tiles = (s.channels + kTileChannels - 1) / kTileChannels;
  return {static_cast<unsigned>(moment_blocks(s.rows) * tiles), static_cast<unsigned>(s.shards)};
}

template <typename Merge, typename Finish>
void launch_merge(const BatchNormShape& s, const float* scratch, const Finish& finish, [[maybe_unused]] Stream stream) {
  const dim3 grid(static_cast<unsigned>((s.channels + 31) / 32), static_cast<unsigned>(s.shards));
  TANDEM_LAUNCH("batch norm, merging blocks", (merge_blocks<Merge, Finish>), grid, dim3(32, kMomentLanes), stream, s,
                scratch, finish);
}

}  // namespace tandem::cuda
