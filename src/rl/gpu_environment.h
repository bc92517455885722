// rl/gpu_environment.h -- an environment's own kernels: the environments of many shards, stepped by one launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/philox.h"

struct CUstream_st;

namespace tandem {

// One shard's environments, all pointers on the GPU.
struct ShardEnvironments {
  int32_t kind;    // which problem, where one kernel knows several
  uint32_t shard;  // for the random key
  std::byte* states;
  const int32_t* actions;
  float* rewards;
  int32_t* ends;    // an End
  float* observed;  // [n, observation_size], after the step
};

// Steps each environment, resets those whose episode ended, and writes observations; with `only_observe` only the
// last. The key is read on the GPU, except for shard and site.
using GpuAdvance = void (*)(const ShardEnvironments* shards, int count, int64_t n, const RandomKey* key,
                            uint32_t step_site, uint32_t reset_site, bool only_observe, CUstream_st* stream);

struct GpuEnvironment {
  GpuAdvance advance;
  int32_t kind;
};

}  // namespace tandem
