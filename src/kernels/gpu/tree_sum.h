// kernels/gpu/tree_sum.h -- adding up along a tree of shards (reduce/sum_tree.h) in registers.
#pragma once

#include "kernels/gpu/intrinsics.h"

namespace tandem::cuda {

// Float addition depends on order, so shards are added along one fixed binary tree. Their values arrive in shard order.
// After a push, the new value and the top of the stack are merged `merges` times, as left + right: the bits of the tree
// sum. The stack holds the roots of finished subtrees, at most kMaxPending at once; a value is kCount floats. Indices
// are compile-time constants (loops with a compare), so the stack stays in registers.
template <int kCount, int kMaxPending>
struct TreeStack {
  float pending[kMaxPending][kCount] = {};
  int size = 0;

  __device__ void push(const float (&value)[kCount], int merges) {
    float sum[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] = value[i];
    for (; merges > 0; --merges) {
      --size;
#pragma unroll
      for (int d = 0; d < kMaxPending; ++d)
        if (d == size)
#pragma unroll
          for (int i = 0; i < kCount; ++i) sum[i] = pending[d][i] + sum[i];
    }
#pragma unroll
    for (int d = 0; d < kMaxPending; ++d)
      if (d == size)
#pragma unroll
        for (int i = 0; i < kCount; ++i) pending[d][i] = sum[i];
    ++size;
  }
  __device__ const float (&top() const)[kCount] { return pending[0]; }
};

}  // namespace tandem::cuda
