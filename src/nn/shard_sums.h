// nn/shard_sums.h -- sums over the rows of each shard of a pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

// [shards]: the sum of values[row] * weight[row] over the rows of each shard, in a fixed order. `values` is float
// [rows], the rows of the shards one after the other; its gradient is weight[row] times that of its shard's sum.
at::Tensor shard_sums(const at::Tensor& values, const at::Tensor& weight, int shards);

}  // namespace tandem
