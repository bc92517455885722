// kernels/cpu/norm_relu.h -- a hidden layer's layer norm, ReLU and dropout in one pass over its rows, there and back.
//
// Sums over a row run in 16 lanes (element i in lane i % 16), which are then added by halves; sums over rows run in the
// order of rows. So every variant gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

// y = max(0, normed * weight + bias) * mask with normed = (x - mean) / sqrt(variance + eps). Without a mask (null) it
// is
// 1. `normed` and `inverse` (1 / sqrt(...) of each row) are what the way back needs; null: not wanted. Either y or
// normed may be x.
void norm_relu(const float* x, const float* weight, const float* bias, const float* mask, float* y, float* normed,
               float* inverse, int64_t rows, int64_t width, float eps = 1e-5f, CpuVariant variant = best_cpu_variant());

// The gradient: dx (may be dy) is written, weight_grad and bias_grad are added to. The mask's numbers were 0 or `kept`.
void norm_relu_backward(const float* dy, const float* y, const float* normed, const float* inverse, const float* weight,
                        float kept, float* dx, float* weight_grad, float* bias_grad, int64_t rows, int64_t width,
                        CpuVariant variant = best_cpu_variant());

// x = max(0, x); and dy = 0 where y, what came out, is 0.
void relu(float* x, int64_t n, CpuVariant variant = best_cpu_variant());
void relu_backward(float* dy, const float* y, int64_t n, CpuVariant variant = best_cpu_variant());

// out[r] = bias + the sum of x[r][i] * w[i] over i < width, rows `stride` apart.
void row_dots(const float* x, int64_t stride, const float* w, float bias, float* out, int64_t rows, int64_t width,
              CpuVariant variant = best_cpu_variant());

// out[j] += x[0][j] + x[1][j] + ..., one after the other.
void add_rows(float* out, const float* x, int64_t rows, int64_t width, CpuVariant variant = best_cpu_variant());

}  // namespace tandem
