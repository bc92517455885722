// hardware/cuda_needed.h -- what CUDA the driver must know.
#pragma once

namespace tandem {

inline constexpr int kCudaNeeded = 13000;  // for the libtorch that set-up installs

}  // namespace tandem
