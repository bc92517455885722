// kernels/tree_kernels.h -- sums over shards along the tree (reduce/sum_tree.h), and over the rows of each shard.
//
// CPU and CUDA give equal bits. On a GPU, `stream` is a cudaStream_t and every call only queues work; `merges` is host
// memory, read before the call returns. On a CPU `stream` is not used.
#pragma once

#include <cstdint>

#include "kernels/gpu/kernel_tables.h"

namespace tandem {

inline constexpr int kMaxTreeShards = 1024;  // of one call, on a GPU

struct TreeKernels {
  static constexpr KernelTableId kId{"tree", 1};
  static const TreeKernels& cpu();

  // out [n] = the sum of the leaves + 0.0f (so that -0 becomes 0), or out += that sum with `add`. Leaf s begins at
  // leaves + s * leaf_stride. `merges` [shards] as SumTree::merges() gives them: how many partial sums are merged after
  // each leaf, as left + right; one is left in the end. `out` may be the first leaf, and overlaps no other one. Throws
  // std::logic_error for merges that leave several sums or take more than there are, and for too many shards.
  void (*tree_sum)(const float* leaves, int64_t leaf_stride, int shards, const int* merges, float* out, int64_t n,
                   bool add, void* stream);

  // out [shards] = the sum of x * weight over each shard's rows: x and weight [shards * rows], weight null: of x. Lane
  // l of 1,024 adds rows l, l + 1024, ... in this order, then lanes are halved: lane l takes lane l + 512, 256, ... 1.
  void (*shard_sums)(const float* x, const float* weight, int shards, int64_t rows, float* out, void* stream);
};

inline constexpr int kSumLanes = 1024;  // of shard_sums

// The most partial sums that wait at once, the newest included. Throws as tree_sum() does.
int tree_depth(const int* merges, int shards);

namespace cuda {
void tree_sum(const float* leaves, int64_t leaf_stride, int shards, const int* merges, float* out, int64_t n, bool add,
              void* stream);
void shard_sums(const float* x, const float* weight, int shards, int64_t rows, float* out, void* stream);
}  // namespace cuda

}  // namespace tandem
