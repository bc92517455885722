// recipes/cuda_web_environment.h -- GpuAdvance of rl/gpu_environment.h for the web-test worlds; a set's kind is its
// agent.
#pragma once

#include "rl/gpu_environment.h"

namespace tandem::cuda {

void advance_web(const GpuSet* sets, int count, int64_t n, const RandomKey* key, uint32_t step_site,
                 uint32_t reset_site, bool only_observe, CUstream_st* stream);

}  // namespace tandem::cuda
