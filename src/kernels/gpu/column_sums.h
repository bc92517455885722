// kernels/gpu/column_sums.h -- the sum of one column over a shard's rows, for gradients of biases and of layer norms.
// One lane has one column, so the lanes of a warp read neighbouring columns of a row: coalesced.
#pragma once

#include <type_traits>

#include "kernels/gpu/intrinsics.h"

namespace tandem::cuda {

// The column a[row], or the product a[row] * b[row] where b is not null. Strides in floats: from a row to the next,
// from a shard to the next.
struct ColumnView {
  const float *a, *b;
  int a_row_stride, b_row_stride;
  int64_t a_shard_stride, b_shard_stride;
};

__device__ inline float column_sum(const ColumnView& c, int64_t shard, int rows) {
  const float *a = c.a + shard * c.a_shard_stride, *b = c.b ? c.b + shard * c.b_shard_stride : nullptr;
  float sum = 0;
  // A batch of independent loads, then a chain of adds in row order. Pointers advance by adding: computing the
  // addresses ahead needs more registers than there are, and a test per row costs as much as the load.
  const auto add = [&](auto count) {
    float x[count.value];
#pragma unroll
    for (int r = 0; r < count.value; ++r, a += c.a_row_stride) x[r] = *a;
    if (b) {
      float y[count.value];
#pragma unroll
      for (int r = 0; r < count.value; ++r, b += c.b_row_stride) y[r] = *b;
#pragma unroll
      for (int r = 0; r < count.value; ++r) sum = fmaf(x[r], y[r], sum);
    } else {
#pragma unroll
      for (int r = 0; r < count.value; ++r) sum = sum + x[r];
    }
  };
  constexpr int kLargeBatch = 32, kSmallBatch = 8;
  int rows_left = rows;
#pragma unroll 1
  for (; rows_left >= kLargeBatch; rows_left -= kLargeBatch) add(std::integral_constant<int, kLargeBatch>{});
#pragma unroll 1
  for (; rows_left >= kSmallBatch; rows_left -= kSmallBatch) add(std::integral_constant<int, kSmallBatch>{});
#pragma unroll 1
  for (; rows_left > 0; --rows_left) add(std::integral_constant<int, 1>{});
  return sum;
}

}  // namespace tandem::cuda
