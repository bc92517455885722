// kernels/gpu/clip_kernels.cu -- clips on a GPU, as kernels/clip_kernels.h offers them.
#include "kernels/gpu/clips.h"

namespace tandem::cuda {

const ClipKernels& clip_kernels() {
  static const ClipKernels kernels{launch_clips};
  return kernels;
}

}  // namespace tandem::cuda
