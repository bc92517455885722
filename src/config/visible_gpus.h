// config/visible_gpus.h -- which of NVML's GPUs CUDA_VISIBLE_DEVICES leaves to programs started from here.
#pragma once

#include <vector>

#include "hardware/gpu.h"

namespace tandem {

// One for each of `facts`. A GPU with a visible MIG part is visible. Null: all of them.
std::vector<bool> visible_gpus(const std::vector<GpuFacts>& facts, const char* visible_devices);

}  // namespace tandem
