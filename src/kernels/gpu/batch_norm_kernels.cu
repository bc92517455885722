// kernels/gpu/batch_norm_kernels.cu -- CUDA twins of cpu/batch_norm_kernels.cc.
//
// Tiles as in norm_tiles.h. Channels last: the 8 threads of a lane read 128 neighbouring bytes. Contiguous: the 32
// threads of a warp have neighbouring places of the same 8 channels.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/norm_tiles.h"

namespace tandem::cuda {
namespace {

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
