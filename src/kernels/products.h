// kernels/products.h -- matrix products of a small net on a CPU: a few dozen rows times weights that fit the caches.
//
// Each number of a result is one sum in one fixed order (by fused multiply-adds, from 0, in the order of the summed
// index), whatever rows and columns are beside it. So a row's bits do not depend on how many rows are in the call, and
// all variants with a fused multiply-add agree. A CPU without one (kPlain on x86) rounds twice where they round once:
// other bits, as the kind of the device says.
//
// Weights are put into panels of 32 columns first, once for all calls with the same weights: a library would do it in
// every call.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu_variant.h"

namespace tandem {

inline constexpr int64_t kPanel = 32;

// A matrix [depth, width] in panels: [ceil(width / 32)][depth][32], the last one filled up with zeros.
class Panels {
 public:
  void pack(const float* matrix, int64_t depth, int64_t width);             // row-major [depth, width]
  void pack_transposed(const float* matrix, int64_t depth, int64_t width);  // row-major [width, depth]
  const float* data() const { return data_.data(); }
  int64_t depth() const { return depth_; }
  int64_t width() const { return width_; }

 private:
  void shape(int64_t depth, int64_t width);
  int64_t depth_ = 0, width_ = 0;
  std::vector<float> data_;
};

// y = x m + bias (null: 0): x [rows, depth], m [depth, width], y [rows, width]; rows lie `x_stride` and `y_stride`
// apart.
void product(const float* x, int64_t x_stride, const Panels& m, const float* bias, float* y, int64_t y_stride,
             int64_t rows, CpuVariant variant = best_cpu_variant());

// sum += dy^T x: dy [rows, out], x [rows, in], sum [out, in]. Each number of dy^T x is summed over rows, then added.
void add_outer(const float* dy, int64_t dy_stride, const float* x, int64_t x_stride, float* sum, int64_t out,
               int64_t in, int64_t rows, CpuVariant variant = best_cpu_variant());

}  // namespace tandem
