// nn/norm_pool3d.h -- batch norm, ReLU and max pool of a video model in one kernel each way.
//
// pool(norm(x, {.relu = true})) stores the normalised clips, reads them twice and stores their gradient. This keeps 4
// bits for each output instead. The modules are the model's own, so parameters have the names that they always have.
#pragma once

#include "nn/batch_norm.h"
#include "nn/pool3d.h"

namespace tandem {

// The same as pool(norm(x, {.relu = true})) within rounding (in float the output to the bit), channels last, for
// [N, C, T, H, W] in float, bf16 or fp16. It is fused where the pool's boxes do not overlap and have at most 8 places:
// in training with statistics per shard, and outside it where no gradient is asked for. Else the two run one after the
// other.
at::Tensor norm_relu_pool(BatchNormImpl& norm, MaxPool3dImpl& pool, const at::Tensor& x);

}  // namespace tandem
