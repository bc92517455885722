// kernels/gpu/first_block.h -- CUDA twins of cpu/first_block_kernels.cc.
//
// All of it is fp32 multiply-adds out of shared memory; per clip of 17 x 256 x 256 and 32 channels:
//   products    .07 G multiply-adds, one shared-memory load each: bound by these loads
//   forward     .96 G, in registers: a thread has the four places of a window and 8 channels, 32 sums; a tap costs it
//   two
//               16-byte loads of weights and none of inputs, whose 48 values it keeps
//   gradients   .24 G, one load each: a lane has a channel, its window's place of the maximum is an offset
// Tensor cores would need the 27 taps padded to 48 columns gathered in shared memory; they are left for later.
#pragma once

#include "kernels/first_block_math.h"
#include "kernels/gpu/intrinsics.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/gpu/warp.h"

namespace tandem::cuda {

using FirstNorm = FirstBlockKernels::Norm;

// x at a place of a clip, 0 outside.
template <FloatType kType>
__device__ __forceinline__ float clip_at(const FirstBlockShape& s, const void* x, int64_t clip, int t, int h, int w) {
  if (t < 0 || t >= s.time || h < 0 || h >= s.height || w < 0 || w >= s.width) return 0.0f;
  return load_one(x, kType, ((clip * s.time + t) * s.height + h) * s.width + w);
}

// ---- products: a block has a tile of a clip through all its frames, a warp 8 lags ----
inline constexpr int kSharedLagRows = kLagRows + 4, kSharedLagColumns = kLagColumns + 4;
struct SharedFrames {
  float values[3][kSharedLagRows][kSharedLagColumns];  // of frame t in slot t % 3; 2 rows and columns around
};

template <FloatType kType>
__device__ __forceinline__ void load_frame(SharedFrames& shared, const FirstBlockShape& s, const void* x, int64_t clip,
                                           int t, int top, int left) {
  for (int i = static_cast<int>(threadIdx.x); i < kSharedLagRows * kSharedLagColumns; i += kThreads) {
    const int row = i / kSharedLagColumns, column = i % kSharedLagColumns;
    shared.values[t % 3][row][column] = clip_at<kType>(s, x, clip, t, top + row - 2, left + column - 2);
  }
}

__device__ __forceinline__ float halved_lanes(float x) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) x = x + __shfl_xor_sync(kFullMask, x, half);
  return x;
}

// grid: tiles, clips of all shards. rows [clips][tiles][kLagSums].
template <FloatType kType>
__global__ void __launch_bounds__(kThreads) sum_lags(const FirstBlockShape s, const void* x, double* rows) {
  constexpr int kPerWarp = kLags / (kThreads / 32);
  __shared__ SharedFrames shared;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int tile = static_cast<int>(blockIdx.x), across = lag_tiles_across(s);
  const int top = tile / across * kLagRows, left = tile % across * kLagColumns;
  const int bottom = min(top + kLagRows, s.height);
  const int64_t clip = blockIdx.y;
  double* const to = rows + (clip * gridDim.x + tile) * kLagSums + warp * kPerWarp;
  for (int t = 0; t < 2; ++t) load_frame<kType>(shared, s, x, clip, t, top, left);
  double sums[3][3] = {};  // of border classes of height and width; lane i has the lag i of the warp
  for (int t = 0; t < s.time; ++t) {
    load_frame<kType>(shared, s, x, clip, t + 2, top, left);  // beyond the last frame: zeros
    __syncthreads();
#pragma unroll
    for (int border = 0; border < 3; ++border) {
      const int first = border == 0 ? top : border == 2 ? max(top, s.height - 1) : max(top, 1);
      const int last = border == 0 ? min(bottom, 1) : border == 2 ? bottom : min(bottom, s.height - 1);
      if (first >= last) continue;
      float found[3] = {};
#pragma unroll 1
      for (int i = 0; i < kPerWarp; ++i) {
        const int lag = warp * kPerWarp + i;
        const bool plain = lag == kPlainSum;
        const TapOffset d = plain ? TapOffset{0, 0, 0} : lag_offset(lag);
        const float *const one = &shared.values[t % 3][0][0], *const other = &shared.values[(t + d.t) % 3][0][0];
        const auto at = [&](int h, int column) { return (h - top + 2) * kSharedLagColumns + column - left + 2; };
        const int apart = d.h * kSharedLagColumns + d.w;
        float chain = 0;
        for (int h = first; h < last; ++h)
          for (int column = left + lane; column - lane < min(left + kLagColumns, s.width); column += 32) {
            const int place = at(h, column);
            const float x_one = column > 0 && column < s.width - 1 ? one[place] : 0.0f;
            chain = fmaf(x_one, plain ? 1.0f : other[place + apart], chain);
          }
        chain = halved_lanes(chain);
        if (lane == i) found[1] = chain;
#pragma unroll
        for (int side = 0; side < 3; side += 2) {
          const int column = side == 0 ? 0 : s.width - 1;
          if (column < left || column >= left + kLagColumns) continue;
          float edge = 0;
          if (top + lane >= first && top + lane < last) {
            const int place = at(top + lane, column);
            edge = fmaf(one[place], plain ? 1.0f : other[place + apart], 0.0f);
          }
          edge = halved_lanes(edge);
          if (lane == i) found[side] = edge;
        }
      }
#pragma unroll
      for (int w = 0; w < 3; ++w) sums[border][w] = sums[border][w] + static_cast<double>(found[w]);
    }
    const int now = border_class(t, s.time);
    if (t + 1 == s.time || border_class(t + 1, s.time) != now) {
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        if (lane < kPerWarp) to[(now * 9 + i) * kLags + lane] = sums[i / 3][i % 3];
        sums[i / 3][i % 3] = 0;
      }
      if (s.time == 2 && now == 0)  // no frame lies between the first and the last one
        for (int i = 0; i < 9; ++i)
          if (lane < kPerWarp) to[(9 + i) * kLags + lane] = 0;
    }
    __syncthreads();
  }
}

// Of each shard the sum of rows [count][n], by 32 lanes, to sums [shards][n]. Block: 32 numbers x 32 lanes.
template <typename T>
__global__ void __launch_bounds__(1024) add_rows_by_lanes(const T* rows, int64_t count, int64_t n, double* sums) {
  __shared__ double shared[32][32];
  const int lane = static_cast<int>(threadIdx.y);
  const int64_t i = int64_t{blockIdx.x} * 32 + threadIdx.x, shard = blockIdx.y;
  double sum = 0;
  if (i < n)
    for (int64_t row = lane; row < count; row += 32)
      sum = sum + static_cast<double>(rows[(shard * count + row) * n + i]);
  shared[lane][threadIdx.x] = sum;
  for (int half = 16; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) shared[lane][threadIdx.x] = shared[lane][threadIdx.x] + shared[lane + half][threadIdx.x];
  }
  if (lane == 0 && i < n) sums[shard * n + i] = shared[0][threadIdx.x];
}

__global__ void __launch_bounds__(kThreads) tap_sums_of_lags(int shards, const double* lags, double* sums) {
  for (int64_t i = first_item(); i < int64_t{shards} * kTapSums; i += item_stride()) {
    const int number = static_cast<int>(i % kTapSums);
    const bool single = number >= kTaps * kTaps;
    sums[i] = tap_lag_sum(lags + i / kTapSums * kLagSums, single ? number - kTaps * kTaps : number / kTaps,
                          single ? -1 : number % kTaps);
  }
}

struct TapStatistics {
  float eps, share;
  float *mean, *inv_std, *mean_leaves, *var_leaves;
};
__global__ void __launch_bounds__(kThreads)
    tap_statistics(const FirstBlockShape s, const double* sums, const float* weight, const TapStatistics to) {
  const int i = static_cast<int>(first_item());
  if (i >= s.shards * s.channels) return;
  const TapMoments found = tap_moments(s, sums + i / s.channels * kTapSums, weight + i % s.channels * kTaps);
  const float mean = static_cast<float>(found.mean);
  const ChannelStatistics statistics =
      channel_statistics(static_cast<float>(found.variance * static_cast<double>(s.places())), s.places(), to.eps);
  to.mean[i] = mean;
  to.inv_std[i] = statistics.inv_std;
  if (to.mean_leaves) to.mean_leaves[i] = mean * to.share;
  if (to.var_leaves) to.var_leaves[i] = statistics.unbiased_variance * to.share;
}

// ---- outputs: a block has a tile of 8 x 16 of one frame ----
inline constexpr int kWindowRows = 2 * kOutputRows + 2, kWindowColumns = 2 * kOutputColumns + 2;
struct SharedWindows {
  alignas(16) float values[3][kWindowRows][kWindowColumns];  // one place around
};
template <FloatType kType>
__device__ __forceinline__ void load_windows(SharedWindows& shared, const FirstBlockShape& s, const void* x,
                                             int64_t clip, int t, int top, int left) {
  for (int i = static_cast<int>(threadIdx.x); i < 3 * kWindowRows * kWindowColumns; i += kThreads) {
    const int frame = i / (kWindowRows * kWindowColumns), row = i / kWindowColumns % kWindowRows,
              column = i % kWindowColumns;
    shared.values[frame][row][column] =
        clip_at<kType>(s, x, clip, t + frame - 1, 2 * top + row - 1, 2 * left + column - 1);
  }
}

struct SharedTerms {
  alignas(16) float weight[kTaps][kMostFirstChannels];
  float mean[kMostFirstChannels], scale[kMostFirstChannels], shift[kMostFirstChannels];
};

// grid: tiles, frames, clips of all shards. Neighbouring threads have neighbouring channels of a window: whole lines
// are stored.
template <FloatType kType>
__global__ void __launch_bounds__(kThreads, 2)
    first_windows(const FirstBlockShape s, const void* x, const FirstNorm norm, void* y, uint32_t* codes, bool whole) {
  __shared__ SharedWindows windows;
  __shared__ SharedTerms terms;
  const int tile = static_cast<int>(blockIdx.x), t = static_cast<int>(blockIdx.y), across = output_tiles_across(s);
  const int top = tile / across * kOutputRows, left = tile % across * kOutputColumns;
  const int64_t clip = blockIdx.z, shard = clip / s.clips;
  load_windows<kType>(windows, s, x, clip, t, top, left);
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * kMostFirstChannels; i += kThreads) {
    const int tap = i / kMostFirstChannels, c = i % kMostFirstChannels;
    terms.weight[tap][c] = c < s.channels ? norm.weight[c * kTaps + tap] : 0.0f;
  }
  for (int c = static_cast<int>(threadIdx.x); c < kMostFirstChannels; c += kThreads) {
    const bool exists = c < s.channels;
    terms.mean[c] = exists ? norm.mean[shard * s.channels + c] : 0.0f;
    terms.scale[c] = exists ? norm.inv_std[shard * s.channels + c] * norm.scale[c] : 0.0f;
    terms.shift[c] = exists ? norm.shift[c] : 0.0f;
  }
  __syncthreads();
  const int groups = s.code_words();
  for (int item = static_cast<int>(threadIdx.x); item < kTileOutputs * groups; item += kThreads) {
    const int window = item / groups, channel = item % groups * kVector;
    const int row = window / kOutputColumns, column = window % kOutputColumns, h = top + row, w = left + column;
    if (h >= s.out_h() || w >= s.out_w()) continue;
    float in[3][4][4], sums[4][kVector] = {};
#pragma unroll
    for (int a = 0; a < 3; ++a)
#pragma unroll
      for (int b = 0; b < 4; ++b)
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
          const float2 two = *reinterpret_cast<const float2*>(&windows.values[a][2 * row + b][2 * column + c]);
          in[a][b][c] = two.x;
          in[a][b][c + 1] = two.y;
        }
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const float4 low = load4(&terms.weight[k][channel]), high = load4(&terms.weight[k][channel + 4]);
      const float weight[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int p = 0; p < 4; ++p)
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          sums[p][i] = fmaf(weight[i], in[k / 9][k / 3 % 3 + p / 2][k % 3 + p % 2], sums[p][i]);
    }
    float best[kVector] = {};
    uint32_t place[kVector] = {}, packed = 0;
#pragma unroll
    for (int p = 0; p < 4; ++p)
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        take_larger(normalised(sums[p][i], terms.mean[channel + i], terms.scale[channel + i], terms.shift[channel + i]),
                    p, best[i], place[i]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (channel + i < s.channels) packed |= pool_code(best[i], place[i]) << 4 * i;
      best[i] = relu_of(best[i]);
    }
    const int64_t out = ((clip * s.time + t) * s.out_h() + h) * s.out_w() + w;
    store8(y, kType, out * s.channels + channel, min(kVector, s.channels - channel), whole, best);
    codes[out * groups + item % groups] = packed;
  }
}

struct SharedGradients {
  SharedWindows windows;
  float sums[kGradientWarps][kGradientSums][32];
};

// grid: blocks of a clip, groups of 32 channels, clips of all shards. rows [clips][blocks][kGradientSums][channels].
template <FloatType kType>
__global__ void __launch_bounds__(kThreads)
    sum_gradients(const FirstBlockShape s, const void* x, const void* y_grad, const uint32_t* codes, float* rows) {
  static_assert(kThreads == 32 * kGradientWarps);
  __shared__ SharedGradients shared;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int tiles = output_tiles(s), tile = static_cast<int>(blockIdx.x) % tiles, across = output_tiles_across(s);
  const int top = tile / across * kOutputRows, left = tile % across * kOutputColumns;
  const int first = static_cast<int>(blockIdx.x) / tiles * kGradientFrames;
  const int channel = static_cast<int>(blockIdx.y) * 32 + lane;
  const int64_t clip = blockIdx.z;
  float chain[kGradientSums] = {};
  for (int t = first; t < min(first + kGradientFrames, s.time); ++t) {
    __syncthreads();
    load_windows<kType>(shared.windows, s, x, clip, t, top, left);
    __syncthreads();
#pragma unroll 2
    for (int i = warp; i < kTileOutputs; i += kGradientWarps) {
      const int row = i / kOutputColumns, column = i % kOutputColumns, h = top + row, w = left + column;
      if (h >= s.out_h() || w >= s.out_w() || channel >= s.channels) continue;
      const int64_t out = ((clip * s.time + t) * s.out_h() + h) * s.out_w() + w;
      const uint32_t code = code_of_channel(codes[out * s.code_words() + channel / 8], channel);
      const float gradient = code & kPoolAlive ? load_one(y_grad, kType, out * s.channels + channel) : 0.0f;
      const float* const in =
          &shared.windows.values[0][2 * row + static_cast<int>(code >> 1 & 1)][2 * column + static_cast<int>(code & 1)];
#pragma unroll
      for (int k = 0; k < kTaps; ++k)
        chain[k] = fmaf(gradient, in[(k / 9 * kWindowRows + k / 3 % 3) * kWindowColumns + k % 3], chain[k]);
      chain[kTaps] = chain[kTaps] + gradient;
    }
  }
#pragma unroll
  for (int k = 0; k < kGradientSums; ++k) shared.sums[warp][k][lane] = chain[k];
  __syncthreads();
  float* const to = rows + (clip * gridDim.x + blockIdx.x) * kGradientSums * s.channels;
  for (int k = warp; k < kGradientSums; k += kGradientWarps) {
    float sum = shared.sums[0][k][lane];
    for (int other = 1; other < kGradientWarps; ++other) sum = sum + shared.sums[other][k][lane];
    if (channel < s.channels) to[k * s.channels + channel] = sum;
  }
}

// A thread has a tap of a channel of a shard; tap 0 writes the channel's scale and shift too.
__global__ void __launch_bounds__(kThreads)
    first_block_leaves(const FirstBlockShape s, const double* sums, const double* gradients, const FirstNorm norm,
                       float* weight_leaves, float* scale_leaves, float* shift_leaves) {
  const int item = static_cast<int>(first_item());
  if (item >= s.shards * s.channels * kTaps) return;
  const int i = item / kTaps, tap = item % kTaps, shard = i / s.channels, c = i % s.channels;
  const double* const own = gradients + int64_t{shard} * kGradientSums * s.channels + c;
  const float* const weight = norm.weight + c * kTaps;
  const double of_scale = scale_gradient(own, s.channels, weight, norm.mean[i], norm.inv_std[i]);
  weight_leaves[item] = static_cast<float>(tap_gradient(s, sums + shard * kTapSums, own, s.channels, weight, tap,
                                                        norm.mean[i], norm.inv_std[i], norm.scale[c], of_scale));
  if (tap > 0) return;
  scale_leaves[i] = static_cast<float>(of_scale);
  shift_leaves[i] = static_cast<float>(own[kTaps * s.channels]);
}

// call.operator()<type>()
template <typename Call>
void with_first_type(FloatType type, const Call& call) {
  switch (type) {
    case FloatType::kFloat:
      return call.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return call.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return call.template operator()<FloatType::kHalf>();
  }
}
inline unsigned clips_of(const FirstBlockShape& s) { return static_cast<unsigned>(s.shards * s.clips); }
inline dim3 lanes_grid(int64_t n, int shards) { return {ceil_div(n, 32), static_cast<unsigned>(shards)}; }

// Behind the tiles' sums lie those of the shards.
inline void launch_tap_sums(const FirstBlockShape& s, const void* x, double* sums, double* scratch,
                            void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  const int tiles = lag_tiles(s);
  double* const lags = scratch + clips_of(s) * int64_t{tiles} * kLagSums;
  with_first_type(s.type, [&]<FloatType kType>() {
    TANDEM_LAUNCH("first block, products", sum_lags<kType>, dim3(static_cast<unsigned>(tiles), clips_of(s)),
                  dim3(kThreads), stream, s, x, scratch);
  });
  TANDEM_LAUNCH("first block, sums of products", add_rows_by_lanes<double>, lanes_grid(kLagSums, s.shards),
                dim3(32, 32), stream, scratch, s.clips * tiles, int64_t{kLagSums}, lags);
  TANDEM_LAUNCH("first block, sums of taps", tap_sums_of_lags,
                dim3(static_cast<unsigned>(grid_for(int64_t{s.shards} * kTapSums))), dim3(kThreads), stream, s.shards,
                lags, sums);
}

inline void launch_tap_statistics(const FirstBlockShape& s, const double* sums, const float* weight, float eps,
                                  float share, float* mean, float* inv_std, float* mean_leaves, float* var_leaves,
                                  void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  const TapStatistics to{eps, share, mean, inv_std, mean_leaves, var_leaves};
  TANDEM_LAUNCH("first block, statistics", tap_statistics, dim3(ceil_div(s.shards * s.channels, kThreads)),
                dim3(kThreads), stream, s, sums, weight, to);
}

inline void launch_first_block(const FirstBlockShape& s, const void* x, const FirstNorm& norm, void* y, uint32_t* codes,
                               void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  const bool whole = s.channels % kVector == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  with_first_type(s.type, [&]<FloatType kType>() {
    TANDEM_LAUNCH("first block, forward", first_windows<kType>,
                  dim3(static_cast<unsigned>(output_tiles(s)), static_cast<unsigned>(s.time), clips_of(s)),
                  dim3(kThreads), stream, s, x, norm, y, codes, whole);
  });
}

inline void launch_first_gradients(const FirstBlockShape& s, const void* x, const void* y_grad, const uint32_t* codes,
                                   double* gradients, double* scratch, void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  float* const rows = reinterpret_cast<float*>(scratch);
  const int64_t n = int64_t{kGradientSums} * s.channels;
  with_first_type(s.type, [&]<FloatType kType>() {
    TANDEM_LAUNCH("first block, gradients", sum_gradients<kType>,
                  dim3(static_cast<unsigned>(gradient_blocks(s)), ceil_div(s.channels, 32), clips_of(s)),
                  dim3(kThreads), stream, s, x, y_grad, codes, rows);
  });
  TANDEM_LAUNCH("first block, sums of gradients", add_rows_by_lanes<float>, lanes_grid(n, s.shards), dim3(32, 32),
                stream, rows, s.clips * gradient_blocks(s), n, gradients);
}

inline void launch_first_leaves(const FirstBlockShape& s, const double* sums, const double* gradients,
                                const FirstNorm& norm, float* weight_leaves, float* scale_leaves, float* shift_leaves,
                                void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  TANDEM_LAUNCH("first block, leaves", first_block_leaves, dim3(ceil_div(s.shards * s.channels * kTaps, kThreads)),
                dim3(kThreads), stream, s, sums, gradients, norm, weight_leaves, scale_leaves, shift_leaves);
}

}  // namespace tandem::cuda
