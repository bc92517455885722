#include "kernels/cpu/norm_relu.h"

#include <cmath>

#include "kernels/cpu/cpu_dispatch.h"

namespace tandem {
namespace {

constexpr int kLanes = 16;

// Sixteen floats, in whatever registers the variant has.
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

__attribute__((always_inline)) inline float lanes_sum(float* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

#define TANDEM_LOAD(lanes, src) __builtin_memcpy(&(lanes), (src), sizeof(Lanes))
#define TANDEM_STORE(dst, lanes) __builtin_memcpy((dst), &(lanes), sizeof(Lanes))

// Sum of term(i) for i < n; always inlined, so that it is compiled for the calling variant.
template <typename Term>
__attribute__((always_inline)) inline float row_sum(int64_t n, const Term& term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  for (int l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  return lanes_sum(lanes);
}

// R rows interleaved: the additions of one sum depend on each other, those of other rows hide their latency. Full
// vectors first, then the width % 16 columns that are left. One function of more than 60 lines: it is inlined into each
// variant.
template <int R>
__attribute__((always_inline)) inline void norm_rows(const float* x, const float* weight, const float* bias,
                                                     const float* mask, float* y, float* normed, float* inv_std,
                                                     int64_t width, float eps) {
  const float n = static_cast<float>(width);
  const int64_t full_width = width / kLanes * kLanes;
  float lanes[R][kLanes], means[R], inv_stds[R];
  Lanes sums[R] = {};
  for (int64_t i = 0; i < full_width; i += kLanes)
    for (int r = 0; r < R; ++r) {
      Lanes v;
      TANDEM_LOAD(v, x + r * width + i);
      sums[r] = sums[r] + v;
    }
  for (int r = 0; r < R; ++r) {
    TANDEM_STORE(lanes[r], sums[r]);
    for (int64_t i = full_width; i < width; ++i) lanes[r][i - full_width] += x[r * width + i];
    means[r] = lanes_sum(lanes[r]) / n;
    sums[r] = Lanes{};
  }
  for (int64_t i = 0; i < full_width; i += kLanes)
    for (int r = 0; r < R; ++r) {
      Lanes v;
      TANDEM_LOAD(v, x + r * width + i);
      v = v - means[r];
      sums[r] = sums[r] + v * v;
    }
  for (int r = 0; r < R; ++r) {
    TANDEM_STORE(lanes[r], sums[r]);
    for (int64_t i = full_width; i < width; ++i) {
      const float v = x[r * width + i] - means[r];
      lanes[r][i - full_width] += v * v;
    }
    inv_stds[r] = 1.0f / std::sqrt(lanes_sum(lanes[r]) / n + eps);
    if (inv_std) inv_std[r] = inv_stds[r];
  }
  for (int64_t i = 0; i < full_width; i += kLanes) {
    Lanes w, b;
    TANDEM_LOAD(w, weight + i);
    TANDEM_LOAD(b, bias + i);
    for (int r = 0; r < R; ++r) {
      Lanes v, z;
      TANDEM_LOAD(v, x + r * width + i);
      v = (v - means[r]) * inv_stds[r];
      if (normed) TANDEM_STORE(normed + r * width + i, v);
      z = v * w + b;
      z = z <= 0.0f ? Lanes{} : z;  // NaN stays, for the guard to see
      if (mask) {
        TANDEM_LOAD(v, mask + r * width + i);
        z = z * v;
      }
      TANDEM_STORE(y + r * width + i, z);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int64_t i = r * width + full_width; i < (r + 1) * width; ++i) {
      const int64_t c = i - r * width;
      const float v = (x[i] - means[r]) * inv_stds[r], z = v * weight[c] + bias[c];
      if (normed) normed[i] = v;
      y[i] = (z <= 0.0f ? 0.0f : z) * (mask ? mask[i] : 1.0f);
    }
}

constexpr int kRowsAtOnce = 4;

}  // namespace

void norm_relu(const float* x, const float* weight, const float* bias, const float* mask, float* y, float* normed,
               float* inv_std, int64_t rows, int64_t width, float eps, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    const auto row_of = [=](auto* p, int64_t row) TANDEM_INLINE_LAMBDA { return p ? p + row * width : p; };
    int64_t r = 0;
    for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce)
      norm_rows<kRowsAtOnce>(row_of(x, r), weight, bias, row_of(mask, r), row_of(y, r), row_of(normed, r),
                             inv_std ? inv_std + r : nullptr, width, eps);
    for (; r < rows; ++r)
      norm_rows<1>(row_of(x, r), weight, bias, row_of(mask, r), row_of(y, r), row_of(normed, r),
                   inv_std ? inv_std + r : nullptr, width, eps);
  });
}

// Row by row: four interleaved were slower, since rows of a power of two fall into the same cache sets.
void norm_relu_backward(const float* y_grad, const float* y, const float* normed, const float* inv_std,
                        const float* weight, float kept, float* x_grad, float* weight_grad, float* bias_grad,
                        int64_t rows, int64_t width, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    const float n = static_cast<float>(width);
    for (int64_t r = 0; r < rows; ++r) {
      const float *grad_in = y_grad + r * width, *out = y + r * width, *normed_row = normed + r * width;
      float* const grad_out = x_grad + r * width;
      Lanes sums{}, dots{};
      int64_t i = 0;
      for (; i + kLanes <= width; i += kLanes) {
        Lanes g, o, normed_lanes, w, sum;
        TANDEM_LOAD(g, grad_in + i);
        TANDEM_LOAD(o, out + i);
        TANDEM_LOAD(normed_lanes, normed_row + i);
        TANDEM_LOAD(w, weight + i);
        g = (o > 0.0f ? g : Lanes{}) * kept;  // 0 where the ReLU or the mask stopped it: y is 0 there
        TANDEM_LOAD(sum, weight_grad + i);
        sum = sum + g * normed_lanes;
        TANDEM_STORE(weight_grad + i, sum);
        TANDEM_LOAD(sum, bias_grad + i);
        sum = sum + g;
        TANDEM_STORE(bias_grad + i, sum);
        g = g * w;
        TANDEM_STORE(grad_out + i, g);
        sums = sums + g;
        dots = dots + g * normed_lanes;
      }
      float sum_lanes[kLanes], dot_lanes[kLanes];
      TANDEM_STORE(sum_lanes, sums);
      TANDEM_STORE(dot_lanes, dots);
      for (int l = 0; i + l < width; ++l) {
        const float g = (out[i + l] > 0.0f ? grad_in[i + l] : 0.0f) * kept;
        weight_grad[i + l] += g * normed_row[i + l];
        bias_grad[i + l] += g;
        grad_out[i + l] = g * weight[i + l];
        sum_lanes[l] += grad_out[i + l];
        dot_lanes[l] += grad_out[i + l] * normed_row[i + l];
      }
      const float mean = lanes_sum(sum_lanes) / n, mean_dot = lanes_sum(dot_lanes) / n, scale = inv_std[r];
      TANDEM_INDEPENDENT
      for (int64_t k = 0; k < width; ++k) grad_out[k] = scale * (grad_out[k] - mean - normed_row[k] * mean_dot);
    }
  });
}

void relu(float* x, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] <= 0.0f ? 0.0f : x[i];
  });
}

void relu_backward(float* y_grad, const float* y, int64_t n, CpuVariant variant) {
  run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y_grad[i] = y[i] > 0.0f ? y_grad[i] : 0.0f;
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
