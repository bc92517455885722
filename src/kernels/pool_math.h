// kernels/pool_math.h -- the arithmetic that cpu/pool_kernels.cc and gpu/pool_kernels.cu share: kWidth channels of one
// place at a time. load(h, w, values) reads them.
#pragma once

#include <cstdint>

#include "kernels/pool_kernels.h"
#include "kernels/portable.h"

namespace tandem {

// Of a window (or of the windows that contain a place): first <= i < last.
struct PoolRange {
  int first, last;
};
TANDEM_HD PoolRange window_range(int out, int kernel, int stride, int pad, int size) {
  const int first = out * stride - pad, last = first + kernel;
  return {first < 0 ? 0 : first, last > size ? size : last};
}
TANDEM_HD PoolRange windows_of(int in, int kernel, int stride, int pad, int out_size) {
  const int behind = in + pad - kernel + 1;  // the first window that reaches this place begins at or after it
  const int first = behind <= 0 ? 0 : (behind + stride - 1) / stride, last = (in + pad) / stride + 1;
  return {first, last > out_size ? out_size : last};
}

template <int kWidth, typename Load>
TANDEM_HD void max_of_window(const PoolShape& s, int out_h, int out_w, const Load& load, float (&best)[kWidth],
                             uint8_t (&place)[kWidth]) {
  const PoolRange rows = window_range(out_h, s.kernel_h, s.stride_h, s.pad_h, s.in_h);
  const PoolRange columns = window_range(out_w, s.kernel_w, s.stride_w, s.pad_w, s.in_w);
  for (int i = 0; i < kWidth; ++i) best[i] = 0.0f, place[i] = 0;
  bool begun = false;
  for (int h = rows.first; h < rows.last; ++h)
    for (int w = columns.first; w < columns.last; ++w) {
      float value[kWidth];
      load(h, w, value);
      const uint8_t here =
          static_cast<uint8_t>((h - (out_h * s.stride_h - s.pad_h)) * s.kernel_w + w - (out_w * s.stride_w - s.pad_w));
      for (int i = 0; i < kWidth; ++i) {
        const bool larger = !begun || value[i] > best[i] || value[i] != value[i];
        best[i] = larger ? value[i] : best[i];
        place[i] = larger ? here : place[i];
      }
      begun = true;
    }
}

// load(out_h, out_w, gradient, place)
template <int kWidth, typename Load>
TANDEM_HD void max_gradient_at(const PoolShape& s, int h, int w, const Load& load, float (&sum)[kWidth]) {
  for (int i = 0; i < kWidth; ++i) sum[i] = 0.0f;
  const PoolRange rows = windows_of(h, s.kernel_h, s.stride_h, s.pad_h, s.out_h);
  const PoolRange columns = windows_of(w, s.kernel_w, s.stride_w, s.pad_w, s.out_w);
  for (int out_h = rows.first; out_h < rows.last; ++out_h)
    for (int out_w = columns.first; out_w < columns.last; ++out_w) {
      float gradient[kWidth];
      uint8_t place[kWidth];
      load(out_h, out_w, gradient, place);
      const int here = (h - (out_h * s.stride_h - s.pad_h)) * s.kernel_w + w - (out_w * s.stride_w - s.pad_w);
      for (int i = 0; i < kWidth; ++i) sum[i] = place[i] == here ? sum[i] + gradient[i] : sum[i];
    }
}

TANDEM_HD float window_divisor(const PoolShape& s, int out_h, int out_w) {
  if (s.count_padding) return static_cast<float>(s.kernel_h * s.kernel_w);
  const PoolRange rows = window_range(out_h, s.kernel_h, s.stride_h, s.pad_h, s.in_h);
  const PoolRange columns = window_range(out_w, s.kernel_w, s.stride_w, s.pad_w, s.in_w);
  return static_cast<float>((rows.last - rows.first) * (columns.last - columns.first));
}

template <int kWidth, typename Load>
TANDEM_HD void mean_of_window(const PoolShape& s, int out_h, int out_w, const Load& load, float (&mean)[kWidth]) {
  const PoolRange rows = window_range(out_h, s.kernel_h, s.stride_h, s.pad_h, s.in_h);
  const PoolRange columns = window_range(out_w, s.kernel_w, s.stride_w, s.pad_w, s.in_w);
  for (int i = 0; i < kWidth; ++i) mean[i] = 0.0f;
  for (int h = rows.first; h < rows.last; ++h)
    for (int w = columns.first; w < columns.last; ++w) {
      float value[kWidth];
      load(h, w, value);
      for (int i = 0; i < kWidth; ++i) mean[i] = mean[i] + value[i];
    }
  const float divisor = window_divisor(s, out_h, out_w);
  for (int i = 0; i < kWidth; ++i) mean[i] = mean[i] / divisor;
}

template <int kWidth, typename Load>
TANDEM_HD void mean_gradient_at(const PoolShape& s, int h, int w, const Load& load, float (&sum)[kWidth]) {
  for (int i = 0; i < kWidth; ++i) sum[i] = 0.0f;
  const PoolRange rows = windows_of(h, s.kernel_h, s.stride_h, s.pad_h, s.out_h);
  const PoolRange columns = windows_of(w, s.kernel_w, s.stride_w, s.pad_w, s.out_w);
  for (int out_h = rows.first; out_h < rows.last; ++out_h)
    for (int out_w = columns.first; out_w < columns.last; ++out_w) {
      float gradient[kWidth];
      load(out_h, out_w, gradient);
      const float divisor = window_divisor(s, out_h, out_w);
      for (int i = 0; i < kWidth; ++i) sum[i] = sum[i] + gradient[i] / divisor;
    }
}

inline constexpr int kMeanLanes = 8;
// load(place, values), place < in_h * in_w.
template <int kWidth, typename Load>
TANDEM_HD void mean_of_image(const PoolShape& s, const Load& load, float (&mean)[kWidth]) {
  const int places = s.in_h * s.in_w;
  float lanes[kMeanLanes][kWidth] = {};
  for (int first = 0; first < places; first += kMeanLanes) {
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int lane = 0; lane < kMeanLanes; ++lane) {
      if (first + lane >= places) continue;
      float value[kWidth];
      load(first + lane, value);
      for (int i = 0; i < kWidth; ++i) lanes[lane][i] = lanes[lane][i] + value[i];
    }
  }
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int half = kMeanLanes / 2; half > 0; half /= 2)
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int lane = 0; lane < half; ++lane)
      for (int i = 0; i < kWidth; ++i) lanes[lane][i] = lanes[lane][i] + lanes[lane + half][i];
  for (int i = 0; i < kWidth; ++i) mean[i] = lanes[0][i] / static_cast<float>(places);
}

}  // namespace tandem
