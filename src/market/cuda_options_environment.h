// market/cuda_options_environment.h -- the options environments of a rollout on a GPU, moved on by one launch for each
// shard. Gives the bits of options_step.h and options_observation.h on the CPU.
#pragma once

#include "kernels/gpu/kernel_tables.h"
#include "market/options_step.h"
#include "rl/gpu_environment.h"  // lint: allow(order) the interface alone: a header without a library

struct CUstream_st;

namespace tandem {

// A time step of a rollout (RolloutStepper::queue()); actions are below rules.actions(). `market` has its memory on the
// GPU.
using OptionsRolloutKernel = void (*)(const RolloutEnvironments& shard, int64_t n, const MarketView& market,
                                      const OptionsRules& rules, const RolloutClock& clock, const RandomSource& key,
                                      int64_t t, CUstream_st* stream);

namespace cuda {
void step_options_rollout(const RolloutEnvironments& shard, int64_t n, const MarketView& market,
                          const OptionsRules& rules, const RolloutClock& clock, const RandomSource& key, int64_t t,
                          CUstream_st* stream);
}  // namespace cuda

struct OptionsKernels {
  static constexpr KernelTableId kId{"options", 2};
  OptionsRolloutKernel step_rollout;
};

}  // namespace tandem
