// nn/first_block3d.h -- the first block of a video model, pool(norm(conv(clips), {.relu = true})), without the
// convolution's output, which is 30 times as large as the clips: kernels/first_block_kernels.h says how.
//
// The modules are the model's own, so parameters have the names that they always have.
#pragma once

#include "nn/batch_norm.h"
#include "nn/conv3d.h"
#include "nn/pool3d.h"

namespace tandem {

// clips [N, 1, T, H, W] -> [N, out, T, H / 2, W / 2] in autocast's type, channels last. It is the three layers within
// rounding: weights and convolution stay float here whatever the type, gradients are leaves in float. Taken together
// are a convolution of one channel into at most 64, 3 x 3 x 3 with stride 1, padding 1 and no bias (the norm would take
// it away), a pool of 1 x 2 x 2, and clips of 2 or more in T, H and W that need no gradient: in training with
// statistics per shard, and outside it where no gradient is asked for. Else the layers run one after the other.
// is_first_block() says whether layers are such.
at::Tensor first_block(Conv3dImpl& conv, BatchNormImpl& norm, MaxPool3dImpl& pool, const at::Tensor& clips);
bool is_first_block(const Conv3dImpl& conv, const BatchNormImpl& norm, const MaxPool3dImpl& pool);

}  // namespace tandem
