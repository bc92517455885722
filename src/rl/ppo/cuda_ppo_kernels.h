// rl/ppo/cuda_ppo_kernels.h -- PPO's kernels of libtandem_cuda.so.
#pragma once

#include "rl/ppo/ppo_kernels.h"

namespace tandem::cuda {

const PpoKernels& ppo_kernels();

}  // namespace tandem::cuda
