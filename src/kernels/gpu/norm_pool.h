// kernels/gpu/norm_pool.h -- CUDA twins of cpu/norm_pool_kernels.cc.
//
// forward, backward: a thread has a box of 8 channels, neighbouring threads neighbouring channels, so that a warp reads
// and writes whole lines; the loads of a box (8 at most) are queued before the first is used. All three are bound by
// memory: forward reads x and writes a box's worth less, backward reads x and writes its gradient.
// backward_sums: tiles of 256 outputs and 64 channels as in norm_tiles.h; of x it reads the places of the maxima alone.
#pragma once

#include "kernels/gpu/norm_tiles.h"
#include "kernels/norm_pool_math.h"

namespace tandem::cuda {

using NormPoolGiven = NormPoolKernels::Given;

struct NormPoolTerms {
  float mean[kVector], scale[kVector], bias[kVector];
  __device__ __forceinline__ NormPoolTerms(const NormPoolShape& s, const NormPoolGiven& given, int shard,
                                           int64_t channel, int channels) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int64_t all = shard * s.channels + channel + i;
      mean[i] = i < channels ? given.mean[all] : 0.0f;
      scale[i] = i < channels ? given.inv_std[all] * given.weight[channel + i] : 0.0f;
      bias[i] = i < channels ? given.bias[channel + i] : 0.0f;
    }
  }
};

// This thread's next box and 8 channels of a shard: blockIdx.y is the shard.
struct BoxItem {
  PoolBox box;
  int64_t channel;
  int channels;
  __device__ __forceinline__ BoxItem(const NormPoolShape& s, int shard, int64_t item, bool all) {
    const unsigned groups = static_cast<unsigned>(s.code_words());
    const int64_t number = item / groups, boxes = boxes_of_clip(s, all);
    channel = (item - number * groups) * kVector;
    channels = static_cast<int>(min(int64_t{kVector}, s.channels - channel));
    const int64_t clip = number / boxes;
    box = pool_box(s, shard * s.clips + clip, static_cast<unsigned>(number - clip * boxes), all);
  }
};

template <FloatType kType>
__global__ void __launch_bounds__(kThreads)
    norm_pool_boxes(const NormPoolShape s, const NormPoolGiven given, void* y, uint32_t* codes, bool whole) {
  const int shard = static_cast<int>(blockIdx.y);
  const int64_t items = s.clips * boxes_of_clip(s, false) * s.code_words();
  for (int64_t item = first_item(); item < items; item += item_stride()) {
    const BoxItem me(s, shard, item, false);
    const NormPoolTerms terms(s, given, shard, me.channel, me.channels);
    float value[kMostBoxPlaces][kVector], best[kVector] = {};
    uint32_t place[kVector] = {}, packed = 0;
#pragma unroll
    for (int inside = 0; inside < kMostBoxPlaces; ++inside)
      if (inside < s.box_places())
        load8(given.x, kType, place_in(s, me.box, inside) * s.channels + me.channel, me.channels, whole, value[inside]);
#pragma unroll
    for (int inside = 0; inside < kMostBoxPlaces; ++inside)
      if (inside < s.box_places())
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          take_larger(normalised(value[inside][i], terms.mean[i], terms.scale[i], terms.bias[i]), inside, best[i],
                      place[i]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < me.channels) packed |= pool_code(best[i], place[i]) << 4 * i;
      best[i] = relu_of(best[i]);
    }
    const int64_t out = place_out(s, me.box);
    store8(y, kType, out * s.channels + me.channel, me.channels, whole, best);
    codes[out * s.code_words() + me.channel / kVector] = packed;
  }
}

template <FloatType kType>
__global__ void __launch_bounds__(kThreads, 2)
    norm_pool_sums(const NormPoolShape s, const BatchNormShape outputs, const NormPoolGiven given, const void* y_grad,
                   const uint32_t* codes, float* scratch, bool whole) {
  __shared__ SharedPairs shared;
  const NormThread<true> me(outputs);
  float weighted[kVector] = {}, sums[kVector] = {};
  if (me.channels > 0) {
    const NormPoolTerms terms(s, given, me.shard, me.channel, me.channels);
#pragma unroll 1
    for (int k = 0; k < me.rows; ++k) {
      const int64_t of_shard = me.row + k * kMomentLanes, out = me.shard * outputs.rows + of_shard;
      const int64_t clip = of_shard / s.clip_out();
      const PoolBox box =
          pool_box(s, me.shard * s.clips + clip, static_cast<unsigned>(of_shard - clip * s.clip_out()), false);
      float gradient[kVector];
      load8(y_grad, kType, out * s.channels + me.channel, me.channels, whole, gradient);
      const uint32_t code = codes[out * s.code_words() + me.channel / kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const uint32_t own = code >> 4 * i & 15u;
        const float x =
            i < me.channels
                ? load_one(given.x, kType, place_in(s, box, static_cast<int>(own & 7)) * s.channels + me.channel + i)
                : 0.0f;
        const float counted = own & kPoolAlive ? gradient[i] : 0.0f;
        weighted[i] = weighted[i] + counted * (x - terms.mean[i]);
        sums[i] = sums[i] + counted;
      }
    }
  }
  reduce_tile<SumMerge>(shared, outputs, me, weighted, sums, scratch);
}

template <FloatType kType>
__global__ void __launch_bounds__(kThreads)
    norm_unpool_boxes(const NormPoolShape s, const NormPoolGiven given, const void* y_grad, const uint32_t* codes,
                      const float* weight_leaves, const float* bias_leaves, void* x_grad, bool whole) {
  const int shard = static_cast<int>(blockIdx.y);
  const int64_t items = s.clips * boxes_of_clip(s, true) * s.code_words(), rows = s.clips * s.clip_in();
  for (int64_t item = first_item(); item < items; item += item_stride()) {
    const BoxItem me(s, shard, item, true);
    float gradient[kVector] = {}, value[kMostBoxPlaces][kVector];
    uint32_t code = 0;
    if (me.box.whole) {
      const int64_t out = place_out(s, me.box);
      load8(y_grad, kType, out * s.channels + me.channel, me.channels, whole, gradient);
      code = codes[out * s.code_words() + me.channel / kVector];
    }
#pragma unroll
    for (int inside = 0; inside < kMostBoxPlaces; ++inside) {
      if (inside >= s.box_places()) continue;
      const int64_t in = place_in(s, me.box, inside);
      if (in >= 0) load8(given.x, kType, in * s.channels + me.channel, me.channels, whole, value[inside]);
    }
    const NormPoolTerms terms(s, given, shard, me.channel, me.channels);
    BackwardTerms backward[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int64_t all = shard * s.channels + me.channel + i;
      backward[i] = i < me.channels ? backward_terms(terms.mean[i], given.inv_std[all], given.weight[me.channel + i],
                                                     weight_leaves[all], bias_leaves[all], rows)
                                    : BackwardTerms{};
    }
#pragma unroll
    for (int inside = 0; inside < kMostBoxPlaces; ++inside) {
      if (inside >= s.box_places()) continue;
      const int64_t in = place_in(s, me.box, inside);
      if (in < 0) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float here = (code >> 4 * i & 15u) == (static_cast<uint32_t>(inside) | kPoolAlive) ? gradient[i] : 0.0f;
        value[inside][i] = norm_x_grad(here, value[inside][i], backward[i]);
      }
      store8(x_grad, kType, in * s.channels + me.channel, me.channels, whole, value[inside]);
    }
  }
}

// call.operator()<type>()
template <typename Call>
void with_pooled_type(const NormPoolShape& s, const Call& call) {
  if (s.shards <= 0 || s.clips <= 0 || s.channels <= 0) return;
  switch (s.type) {
    case FloatType::kFloat:
      return call.template operator()<FloatType::kFloat>();
    case FloatType::kBFloat16:
      return call.template operator()<FloatType::kBFloat16>();
    case FloatType::kHalf:
      return call.template operator()<FloatType::kHalf>();
  }
}

inline bool lies_aligned(const NormPoolShape& s, const void* a, const void* b, const void* c) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | reinterpret_cast<uintptr_t>(c);
  return s.channels % kVector == 0 && bits % 16 == 0;
}
inline dim3 box_grid(const NormPoolShape& s, bool all) {
  return {static_cast<unsigned>(grid_for(s.clips * boxes_of_clip(s, all) * s.code_words())),
          static_cast<unsigned>(s.shards)};
}

inline void launch_norm_pool(const NormPoolShape& s, const NormPoolGiven& given, void* y, uint32_t* codes,
                             void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  const bool whole = lies_aligned(s, given.x, y, nullptr);
  with_pooled_type(s, [&]<FloatType kType>() {
    if (s.clip_out() > 0)
      TANDEM_LAUNCH("norm + ReLU + pool", norm_pool_boxes<kType>, box_grid(s, false), dim3(kThreads), stream, s, given,
                    y, codes, whole);
  });
}

inline void launch_norm_pool_sums(const NormPoolShape& s, const NormPoolGiven& given, const void* y_grad,
                                  const uint32_t* codes, float* weight_leaves, float* bias_leaves, float* scratch,
                                  void* stream_pointer) {
  const auto stream = static_cast<Stream>(stream_pointer);
  const BatchNormShape outputs = s.outputs();
  const bool whole = lies_aligned(s, y_grad, nullptr, nullptr);
  with_pooled_type(s, [&]<FloatType kType>() {
    TANDEM_LAUNCH("norm + ReLU + pool, backward sums", norm_pool_sums<kType>, tile_grid(outputs), dim3(kThreads),
                  stream, s, outputs, given, y_grad, codes, scratch, whole);
    launch_merge<SumMerge>(outputs, scratch, FinishSums{given.inv_std, weight_leaves, bias_leaves}, stream);
  });
}

inline void launch_norm_unpool(const NormPoolShape& s, const NormPoolGiven& given, const void* y_grad,
                               const uint32_t* codes, const float* weight_leaves, const float* bias_leaves,
                               void* x_grad, void* stream_pointer) {
  [[maybe_unused]] const auto stream = static_cast<Stream>(stream_pointer);
  const bool whole = lies_aligned(s, given.x, y_grad, x_grad);
  with_pooled_type(s, [&]<FloatType kType>() {
    TANDEM_LAUNCH("norm + ReLU + pool, backward", norm_unpool_boxes<kType>, box_grid(s, true), dim3(kThreads), stream,
                  s, given, y_grad, codes, weight_leaves, bias_leaves, x_grad, whole);
  });
}

}  // namespace tandem::cuda
