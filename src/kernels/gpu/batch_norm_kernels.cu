// kernels/gpu/batch_norm_kernels.cu -- CUDA twins of cpu/batch_norm_kernels.cc.
//
// A block of 256 threads has a tile of 256 rows and 64 channels of one shard: a thread has 8 channels of 8 rows (one
// lane of the sums), 16 bytes of bf16 per row. Channels last: the 8 threads of a lane read 128 neighbouring bytes.
// Contiguous: the 32 threads of a warp have neighbouring places of the same 8 channels.
#include "kernels/batch_norm_kernels.h"
#include "kernels/batch_norm_math.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/typed_vectors.h"

namespace tandem::cuda {
namespace {

constexpr int kGroups = 8, kTileChannels = kGroups * kVector;  // of 8 channels each
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

template <FloatType kType, bool kChannelsLast>
struct NormAccess {
  int64_t stride;  // of channels
  bool whole;      // 16-byte aligned, and channels a multiple of 8
  __device__ __forceinline__ void load(const void* data, int64_t at, int channels, float (&x)[kVector]) const {
    if constexpr (kChannelsLast) {
      load8(data, kType, at, channels, whole && channels == kVector, x);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] = i < channels ? load_one(data, kType, at + i * stride) : 0.0f;
    }
  }
  __device__ __forceinline__ void store(void* data, int64_t at, int channels, const float (&x)[kVector]) const {
    if constexpr (kChannelsLast) {
      store8(data, kType, at, channels, whole && channels == kVector, x);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        if (i < channels) store_one(data, kType, at + i * stride, x[i]);
    }
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

template <FloatType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads)
    tile_moments(const BatchNormShape s, const void* x, bool whole, float* scratch) {
  __shared__ SharedPairs shared;
  const NormThread<kChannelsLast> me(s);
  const NormAccess<kType, kChannelsLast> access{s.inner, whole};
  float values[kMomentLaneRows][kVector] = {}, mean[kVector] = {}, squares[kVector] = {};
#pragma unroll
  for (int k = 0; k < kMomentLaneRows; ++k)
    if (k < me.rows) access.load(x, me.at(s, k), me.channels, values[k]);
#pragma unroll
  for (int k = 0; k < kMomentLaneRows; ++k)
    if (k < me.rows)
#pragma unroll
      for (int i = 0; i < kVector; ++i) mean[i] = mean[i] + values[k][i];
  if (me.rows > 0) {
    const float count = static_cast<float>(me.rows);
#pragma unroll
    for (int i = 0; i < kVector; ++i) mean[i] = mean[i] / count;
  }
#pragma unroll
  for (int k = 0; k < kMomentLaneRows; ++k)
    if (k < me.rows)
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float distance = values[k][i] - mean[i];
        squares[i] = squares[i] + distance * distance;
      }
  reduce_tile<MomentMerge>(shared, s, me, mean, squares, scratch);
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

struct FinishStatistics {
  int64_t rows;
  float eps, share;
  float *mean, *inv_std, *mean_leaves, *var_leaves;
  __device__ void operator()(int64_t i, float found_mean, float squares) const {
    const ChannelStatistics found = channel_statistics(squares, rows, eps);
    mean[i] = found_mean;
    inv_std[i] = found.inv_std;
    if (mean_leaves) mean_leaves[i] = found_mean * share;
    if (var_leaves) var_leaves[i] = found.unbiased_variance * share;
  }
};
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

template <FloatType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads)
    tile_forward(const BatchNormShape s, const void* x, const void* add, const float* mean, const float* inv_std,
                 const float* weight, const float* bias, bool relu, void* y, bool whole) {
  const NormThread<kChannelsLast> me(s);
  if (me.channels == 0) return;
  const NormAccess<kType, kChannelsLast> access{s.inner, whole};
  const NormTerms8 terms(s, me.shard, me.channel, me.channels, mean, inv_std, weight, bias);
  constexpr int kBatch = 4;
  for (int first = 0; first < kMomentLaneRows; first += kBatch) {
    float value[kBatch][kVector], added[kBatch][kVector];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= me.rows) continue;
      access.load(x, me.at(s, first + k), me.channels, value[k]);
      if (add) access.load(add, me.at(s, first + k), me.channels, added[k]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= me.rows) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        value[k][i] = normalised(value[k][i], terms.mean[i], terms.scale[i], terms.bias[i]);
        if (add) value[k][i] = value[k][i] + added[k][i];
        if (relu) value[k][i] = relu_of(value[k][i]);
      }
      access.store(y, me.at(s, first + k), me.channels, value[k]);
    }
  }
}

using NormGiven = BatchNormKernels::Backward;

// Rows of a thread, loaded before the first of them is used: `gradient` = y_grad where it counts.
template <FloatType kType, bool kChannelsLast>
struct GradientRows {
  static constexpr int kBatch = kChannelsLast ? 2 : 1;
  float gradient[kBatch][kVector], x[kBatch][kVector];

  __device__ __forceinline__ void load(const BatchNormShape& s, const NormThread<kChannelsLast>& me, int first,
                                       const NormAccess<kType, kChannelsLast>& access, const NormGiven& given,
                                       const NormTerms8& terms) {
    float y[kBatch][kVector];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= me.rows) continue;
      const int64_t at = me.at(s, first + k);
      access.load(given.y_grad, at, me.channels, gradient[k]);
      access.load(given.x, at, me.channels, x[k]);
      if (given.relu && given.y) access.load(given.y, at, me.channels, y[k]);
    }
    if (!given.relu) return;
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (!given.y)
          y[k][i] = round_one(kType, relu_of(normalised(x[k][i], terms.mean[i], terms.scale[i], terms.bias[i])));
        gradient[k][i] = where_positive(gradient[k][i], y[k][i]);
      }
  }
};

template <FloatType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads, 2)
    tile_gradient_sums(const BatchNormShape s, const NormGiven given, bool whole, float* scratch) {
  __shared__ SharedPairs shared;
  const NormThread<kChannelsLast> me(s);
  const NormAccess<kType, kChannelsLast> access{s.inner, whole};
  const NormTerms8 terms(s, me.shard, me.channel, me.channels, given.mean, given.inv_std, given.weight, given.bias);
  float weighted[kVector] = {}, sums[kVector] = {};
  constexpr int kBatch = GradientRows<kType, kChannelsLast>::kBatch;
#pragma unroll 1
  for (int first = 0; first < kMomentLaneRows; first += kBatch) {
    GradientRows<kType, kChannelsLast> now;
    now.load(s, me, first, access, given, terms);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= me.rows) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        weighted[i] = weighted[i] + now.gradient[k][i] * (now.x[k][i] - terms.mean[i]);
        sums[i] = sums[i] + now.gradient[k][i];
      }
    }
  }
  reduce_tile<SumMerge>(shared, s, me, weighted, sums, scratch);
}

template <FloatType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads)
    tile_backward(const BatchNormShape s, const NormGiven given, const float* weight_leaves, const float* bias_leaves,
                  void* x_grad, void* add_grad, bool whole) {
  const NormThread<kChannelsLast> me(s);
  if (me.channels == 0) return;
  const NormAccess<kType, kChannelsLast> access{s.inner, whole};
  const NormTerms8 terms(s, me.shard, me.channel, me.channels, given.mean, given.inv_std, given.weight, given.bias);
  float mean_grad[kVector], slope[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int64_t all = me.shard * s.channels + me.channel + i;
    const BackwardTerms found = i < me.channels ? backward_terms(terms.mean[i], given.inv_std[all], 1.0f,
                                                                 weight_leaves[all], bias_leaves[all], s.rows)
                                                : BackwardTerms{};
    mean_grad[i] = found.mean_grad;
    slope[i] = found.slope;
  }
  constexpr int kBatch = GradientRows<kType, kChannelsLast>::kBatch;
#pragma unroll 1
  for (int first = 0; first < kMomentLaneRows; first += kBatch) {
    GradientRows<kType, kChannelsLast> now;
    now.load(s, me, first, access, given, terms);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= me.rows) continue;
      const int64_t at = me.at(s, first + k);
      if (add_grad) access.store(add_grad, at, me.channels, now.gradient[k]);
      if (!x_grad) continue;
      float x_gradient[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        x_gradient[i] =
            norm_x_grad(now.gradient[k][i], now.x[k][i], {terms.mean[i], terms.scale[i], mean_grad[i], slope[i]});
      access.store(x_grad, at, me.channels, x_gradient);
    }
  }
}

// call.operator()<type, channels last>()
template <typename Call>
void with_norm_shape(const BatchNormShape& s, const Call& call) {
  if (s.shards <= 0 || s.rows <= 0 || s.channels <= 0) return;
  const auto with_type = [&]<FloatType kType>() {
    if (s.inner == 1)
      call.template operator()<kType, true>();
    else
      call.template operator()<kType, false>();
  };
  switch (s.type) {
    case FloatType::kFloat:
      return with_type.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return with_type.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return with_type.template operator()<FloatType::kHalf>();
  }
}

dim3 tile_grid(const BatchNormShape& s) {
  const int64_t tiles = (s.channels + kTileChannels - 1) / kTileChannels;
  return {static_cast<unsigned>(moment_blocks(s.rows) * tiles), static_cast<unsigned>(s.shards)};
}

template <typename Merge, typename Finish>
void launch_merge(const BatchNormShape& s, const float* scratch, const Finish& finish, Stream stream) {
  const dim3 grid(static_cast<unsigned>((s.channels + 31) / 32), static_cast<unsigned>(s.shards));
  merge_blocks<Merge><<<grid, dim3(32, kMomentLanes), 0, stream>>>(s, scratch, finish);
  check_launch("batch norm, merging blocks");
}

void statistics(const BatchNormShape& s, const void* x, float eps, float share, float* mean, float* inv_std,
                float* mean_leaves, float* var_leaves, float* scratch, void* stream) {
  const Stream queue = static_cast<Stream>(stream);
  const bool whole = s.channels % kVector == 0 && aligned16(x);
  with_norm_shape(s, [&]<FloatType kType, bool kLast>() {
    tile_moments<kType, kLast><<<tile_grid(s), kThreads, 0, queue>>>(s, x, whole, scratch);
    check_launch("batch norm statistics");
    launch_merge<MomentMerge>(s, scratch, FinishStatistics{s.rows, eps, share, mean, inv_std, mean_leaves, var_leaves},
                              queue);
  });
}

void forward(const BatchNormShape& s, const void* x, const void* add, const float* mean, const float* inv_std,
             const float* weight, const float* bias, bool relu, void* y, void* stream) {
  const bool whole = s.channels % kVector == 0 && aligned16(x, add, static_cast<const void*>(y));
  with_norm_shape(s, [&]<FloatType kType, bool kLast>() {
    tile_forward<kType, kLast><<<tile_grid(s), kThreads, 0, static_cast<Stream>(stream)>>>(
        s, x, add, mean, inv_std, weight, bias, relu, y, whole);
    check_launch("batch norm forward");
  });
}

void backward_sums(const BatchNormShape& s, const NormGiven& given, float* weight_leaves, float* bias_leaves,
                   float* scratch, void* stream) {
  const Stream queue = static_cast<Stream>(stream);
  const bool whole = s.channels % kVector == 0 && aligned16(given.y_grad, given.x, given.y);
  with_norm_shape(s, [&]<FloatType kType, bool kLast>() {
    tile_gradient_sums<kType, kLast><<<tile_grid(s), kThreads, 0, queue>>>(s, given, whole, scratch);
    check_launch("batch norm backward sums");
    launch_merge<SumMerge>(s, scratch, FinishSums{given.inv_std, weight_leaves, bias_leaves}, queue);
  });
}

void backward(const BatchNormShape& s, const NormGiven& given, const float* weight_leaves, const float* bias_leaves,
              void* x_grad, void* add_grad, void* stream) {
  const bool whole =
      s.channels % kVector == 0 &&
      aligned16(given.y_grad, given.x, given.y, static_cast<const void*>(x_grad), static_cast<const void*>(add_grad));
  with_norm_shape(s, [&]<FloatType kType, bool kLast>() {
    tile_backward<kType, kLast><<<tile_grid(s), kThreads, 0, static_cast<Stream>(stream)>>>(
        s, given, weight_leaves, bias_leaves, x_grad, add_grad, whole);
    check_launch("batch norm backward");
  });
}

}  // namespace

const BatchNormKernels& batch_norm_kernels() {
  static const BatchNormKernels kernels{statistics, forward, backward_sums, backward};
  return kernels;
}

}  // namespace tandem::cuda
