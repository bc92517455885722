// kernels/gpu/norm_pool_kernels.cu -- norm + ReLU + pool on a GPU, as kernels/norm_pool_kernels.h offers them.
#include "kernels/gpu/norm_pool.h"

namespace tandem::cuda {

const NormPoolKernels& norm_pool_kernels() {
  static const NormPoolKernels kernels{launch_norm_pool, launch_norm_pool_sums, launch_norm_unpool};
  return kernels;
}

}  // namespace tandem::cuda
