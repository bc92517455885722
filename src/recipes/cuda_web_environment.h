// recipes/cuda_web_environment.h -- the web-test environments on a GPU (rl/gpu_environment.h); a shard's kind is its
// agent.
#pragma once

#include "kernels/gpu/kernel_tables.h"
#include "rl/gpu_environment.h"

namespace tandem {

namespace cuda {
void advance_web(const ShardEnvironments* shards, int count, int64_t n, const RandomKey* key, uint32_t step_site,
                 uint32_t reset_site, bool only_observe, CUstream_st* stream);
}  // namespace cuda

struct WebKernels {
  static constexpr KernelTableId kId{"web", 1};
  GpuAdvance advance;
};

}  // namespace tandem
