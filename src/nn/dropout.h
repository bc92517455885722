// nn/dropout.h -- dropout whose mask is a function of (seed, step, shard, site, index).
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/random_source.h"

namespace tandem {

// x with each element kept with probability 1 - p and scaled by 1 / (1 - p). Two calls in one forward need two sites.
// In validation it is x itself.
at::Tensor dropout(const at::Tensor& x, double p, const RandomSource& key);

}  // namespace tandem
