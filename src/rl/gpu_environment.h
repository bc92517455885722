// rl/gpu_environment.h -- an environment's own kernels: the environments of many shards, stepped by one launch, and
// those of a rollout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/random_source.h"
#include "rl/rollout_clock.h"

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

// Environments of one shard in a rollout, n of each, where the policy computes.
struct RolloutEnvironments {
  std::byte* states;
  const float* actions;  // as the policy drew them: [n, numbers of an action]
  const int32_t* idle;   // not 0: it stays as it is, with reward 0 and no end
  float* rewards;
  int32_t* ends;    // an End
  float* observed;  // [n, observation_size], after the step
  int32_t* rows;    // of the table
};

// Steps the environments of a rollout without the host: those awake move on, all are observed, and of those whose
// episode ended a new one begins. To the bit what Environment::step_awake(), observe(), table_rows() and reset() do.
class RolloutStepper {
 public:
  virtual ~RolloutStepper() = default;
  // Time step t. `key`: of new episodes; a captured call reads its seed and step on the device.
  virtual void queue(const RolloutEnvironments& shard, int64_t n, const RolloutClock& clock, const RandomSource& key,
                     int64_t t, void* stream) const = 0;
};

}  // namespace tandem
