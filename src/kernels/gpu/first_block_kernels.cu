// kernels/gpu/first_block_kernels.cu -- the first block of a video model on a GPU, as kernels/first_block_kernels.h
// offers it.
#include "kernels/gpu/first_block.h"

namespace tandem::cuda {

const FirstBlockKernels& first_block_kernels() {
  static const FirstBlockKernels kernels{launch_tap_sums, launch_tap_statistics, launch_first_block,
                                         launch_first_gradients, launch_first_leaves};
  return kernels;
}

}  // namespace tandem::cuda
