// kernels/gpu/tree_sum.h -- adding up along a tree of shards (reduce/sum_tree.h) in registers.
#pragma once

#include "kernels/gpu/intrinsics.h"

namespace tandem::cuda {

// Values arrive in shard order. A new value is merged with the top of the stack `merges` times, as left + right: the
// bits of the tree sum. kDepth is the most values that wait at once; indices are compile-time, so the stack stays in
// registers.
template <int kCount, int kDepth>
struct TreeStack {
  float waiting[kDepth][kCount] = {};
  int size = 0;

  __device__ void push(const float (&value)[kCount], int merges) {
    float now[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) now[i] = value[i];
    for (; merges > 0; --merges) {
      --size;
#pragma unroll
      for (int d = 0; d < kDepth; ++d)
        if (d == size)
#pragma unroll
          for (int i = 0; i < kCount; ++i) now[i] = waiting[d][i] + now[i];
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (d == size)
#pragma unroll
        for (int i = 0; i < kCount; ++i) waiting[d][i] = now[i];
    ++size;
  }
  __device__ const float (&top() const)[kCount] { return waiting[0]; }
};

}  // namespace tandem::cuda
