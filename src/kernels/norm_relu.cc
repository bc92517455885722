#include "kernels/norm_relu.h"

#include <cmath>

#include "kernels/cpu_dispatch.h"

namespace tandem {
namespace {

constexpr int kLanes = 16;

__attribute__((always_inline)) inline float lanes_sum(float* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

// Sum of term(i) for i < n; always inlined, so that it is compiled for the variant that asks.
template <typename Term>
__attribute__((always_inline)) inline float row_sum(int64_t n, const Term& term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (int l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  return lanes_sum(lanes);
}

}  // namespace

void norm_relu(const float* x, const float* weight, const float* bias, const float* mask, float* y, float* normed,
               float* inverse, int64_t rows, int64_t width, float eps, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    const float n = static_cast<float>(width);
    for (int64_t r = 0; r < rows; ++r) {
      const float* in = x + r * width;
      float* const out = y + r * width;
      const float mean = row_sum(width, [=](int64_t i) TANDEM_INLINE_LAMBDA { return in[i]; }) / n;
      const float variance =
          row_sum(width, [=](int64_t i) TANDEM_INLINE_LAMBDA { return (in[i] - mean) * (in[i] - mean); }) / n;
      const float scale = 1.0f / std::sqrt(variance + eps);
      if (inverse) inverse[r] = scale;
      float* const keep = normed ? normed + r * width : out;
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) keep[i] = (in[i] - mean) * scale;
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) {
        const float z = keep[i] * weight[i] + bias[i];
        out[i] = z > 0.0f ? z : 0.0f;
      }
      if (!mask) continue;
      const float* kept = mask + r * width;
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) out[i] *= kept[i];
    }
  });
}

void norm_relu_backward(const float* dy, const float* y, const float* normed, const float* inverse, const float* weight,
                        const float* mask, float* dx, float* weight_grad, float* bias_grad, int64_t rows, int64_t width,
                        CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    const float n = static_cast<float>(width);
    for (int64_t r = 0; r < rows; ++r) {
      const float *in = dy + r * width, *out = y + r * width, *hat = normed + r * width;
      const float* kept = mask ? mask + r * width : nullptr;
      float* const grad = dx + r * width;
      // 0 where the ReLU or the mask stopped it: y is 0 there.
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) grad[i] = out[i] > 0.0f ? in[i] : 0.0f;
      if (kept) {
        TANDEM_INDEPENDENT
        for (int64_t i = 0; i < width; ++i) grad[i] *= kept[i];
      }
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) {
        weight_grad[i] += grad[i] * hat[i];
        bias_grad[i] += grad[i];
        grad[i] *= weight[i];
      }
      const float mean = row_sum(width, [=](int64_t i) TANDEM_INLINE_LAMBDA { return grad[i]; }) / n;
      const float slope = row_sum(width, [=](int64_t i) TANDEM_INLINE_LAMBDA { return grad[i] * hat[i]; }) / n;
      const float scale = inverse[r];
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) grad[i] = scale * (grad[i] - mean - hat[i] * slope);
    }
  });
}

void relu(float* x, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
  });
}

void relu_backward(float* dy, const float* y, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
  });
}

void row_dots(const float* x, int64_t stride, const float* w, float bias, float* out, int64_t rows, int64_t width,
              CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t r = 0; r < rows; ++r) {
      const float* in = x + r * stride;
      out[r] = bias + row_sum(width, [=](int64_t i) TANDEM_INLINE_LAMBDA { return in[i] * w[i]; });
    }
  });
}

void add_rows(float* out, const float* x, int64_t rows, int64_t width, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    for (int64_t r = 0; r < rows; ++r) {
      const float* in = x + r * width;
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < width; ++i) out[i] += in[i];
    }
  });
}

}  // namespace tandem
