// kernels/gpu/column_sums.h -- sums of one column over rows, for gradients of biases and of norms: one lane a column.
#pragma once

#include <type_traits>

#include "kernels/gpu/intrinsics.h"

namespace tandem::cuda {

// Column a[row], or a[row] * b[row]; rows lie a_row and b_row floats apart, shards a_shard and b_shard.
struct ColumnOf {
  const float *a, *b;
  int a_row, b_row;
  int64_t a_shard, b_shard;
};

__device__ inline float column_sum(const ColumnOf& c, int64_t shard, int rows) {
  const float *a = c.a + shard * c.a_shard, *b = c.b ? c.b + shard * c.b_shard : nullptr;
  float sum = 0;
  // A batch of independent loads, then a chain of adds in row order. Pointers advance by adding: computing the
  // addresses ahead needs more registers than there are, and a test per row costs as much as the load.
  const auto add = [&](auto count) {
    float x[count.value];
#pragma unroll
    for (int r = 0; r < count.value; ++r, a += c.a_row) x[r] = *a;
    if (b) {
      float y[count.value];
#pragma unroll
      for (int r = 0; r < count.value; ++r, b += c.b_row) y[r] = *b;
#pragma unroll
      for (int r = 0; r < count.value; ++r) sum = fmaf(x[r], y[r], sum);
    } else {
#pragma unroll
      for (int r = 0; r < count.value; ++r) sum = sum + x[r];
    }
  };
  constexpr int kMany = 32, kSome = 8;
  int left = rows;
#pragma unroll 1
  for (; left >= kMany; left -= kMany) add(std::integral_constant<int, kMany>{});
#pragma unroll 1
  for (; left >= kSome; left -= kSome) add(std::integral_constant<int, kSome>{});
#pragma unroll 1
  for (; left > 0; --left) add(std::integral_constant<int, 1>{});
  return sum;
}

}  // namespace tandem::cuda
