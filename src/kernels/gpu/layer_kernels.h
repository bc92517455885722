// kernels/gpu/layer_kernels.h -- the GPU's tables of kernels for layers of nn: layer norm, cross-entropy, embedding,
// dropout.
#pragma once

#include "kernels/dropout_kernels.h"
#include "kernels/norm_kernels.h"
#include "kernels/token_kernels.h"

namespace tandem::cuda {

const LayerNormKernels& layer_norm_kernels();
const CrossEntropyKernels& cross_entropy_kernels();
const EmbeddingKernels& embedding_kernels();
const DropoutKernels& dropout_kernels();

}  // namespace tandem::cuda
