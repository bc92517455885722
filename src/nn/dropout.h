// nn/dropout.h -- dropout whose mask is a function of (seed, step, shard, site, index).
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/random_source.h"

namespace tandem {

// x with each element kept with probability 1 - p and scaled by 1 / (1 - p). Two calls in one forward need two sites.
// In validation it is x itself. With the rows of key.shards shards in x, each shard's mask is the one that it has
// alone. The mask is made anew in backward, not stored. Throws ConfigError for a p outside [0, 1], and for rows that do
// not divide by the shards.
at::Tensor dropout(const at::Tensor& x, double p, const RandomSource& key);

// The same with masks that belong to rows, not to places in the batch: the mask of row r of x is a function of (seed,
// shard, site, row_ids[r], elements per row), whatever batch and step it is in. So a stored step that is seen again has
// the mask that it had at first. row_ids: int64 [rows] on x's device, from 0 up, times the elements per row below 2^50;
// in a pass over several shards each shard's own. Throws ConfigError for row_ids of another shape, type or device too.
at::Tensor dropout_rows(const at::Tensor& x, double p, const RandomSource& key, const at::Tensor& row_ids);

// dropout(x, p, key) + residual in one kernel, to the same bits, in the type that both promote to.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, const RandomSource& key);

}  // namespace tandem
