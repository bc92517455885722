// kernels/cpu/norm_relu.h -- layer norm, ReLU and dropout of a hidden layer in one pass, forward and backward.
//
// Sums over a row run in 16 lanes (element i in lane i % 16), which are then reduced pairwise (l and l + 8, then + 4,
// ...); sums over rows run in row order. So every variant gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

// y = max(0, normed * weight + bias) * mask with normed = (x - mean) / sqrt(variance + eps). A null mask stands for
// ones. `normed` and `inv_std` (1 / sqrt(...) of each row) are saved for backward; null: not wanted. Either y or normed
// may be x.
void norm_relu(const float* x, const float* weight, const float* bias, const float* mask, float* y, float* normed,
               float* inv_std, int64_t rows, int64_t width, float eps = 1e-5f, CpuVariant variant = best_cpu_variant());

// Backward; X_grad is the gradient of X. x_grad (may be y_grad) is written, weight_grad and bias_grad are accumulated
// into. The mask held 0 or `kept`.
void norm_relu_backward(const float* y_grad, const float* y, const float* normed, const float* inv_std,
                        const float* weight, float kept, float* x_grad, float* weight_grad, float* bias_grad,
                        int64_t rows, int64_t width, CpuVariant variant = best_cpu_variant());

// x = max(0, x). Backward: y_grad = 0 where the output y is 0.
void relu(float* x, int64_t n, CpuVariant variant = best_cpu_variant());
void relu_backward(float* y_grad, const float* y, int64_t n, CpuVariant variant = best_cpu_variant());

// out[r] = bias + the sum of x[r][i] * w[i] over i < width, rows `stride` apart.
void row_dots(const float* x, int64_t stride, const float* w, float bias, float* out, int64_t rows, int64_t width,
              CpuVariant variant = best_cpu_variant());

// out[j] += x[0][j] + x[1][j] + ..., in row order.
void add_rows(float* out, const float* x, int64_t rows, int64_t width, CpuVariant variant = best_cpu_variant());

}  // namespace tandem
