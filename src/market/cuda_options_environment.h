// market/cuda_options_environment.h -- the options environments of many shards on a GPU, moved on by one launch. Gives
// the bits of options_step.h and options_observation.h on the CPU.
#pragma once

#include "kernels/gpu/kernel_tables.h"
#include "market/options_step.h"

struct CUstream_st;

namespace tandem {

// One shard's environments, all pointers on the GPU.
struct OptionsShard {
  uint32_t shard;  // for the random key
  OptionsState* states;
  const int32_t* actions;  // each below rules.actions()
  float* rewards;
  int32_t* ends;    // an End
  float* observed;  // [n, kOwnFeatures]
  int32_t* rows;    // of the table of features
};

enum class OptionsAdvance : int32_t {
  kReset,        // each begins an episode; reward 0, end kNone
  kResetEnded,   // those do whose episode has ended; rewards and ends stay as the step left them
  kStep,         // a step of each; those whose episode has ended stay as they are (options_step.h)
  kStepOrReset,  // the same, but those begin an episode: reward 0, end kNone
  kObserve,      // states, rewards and ends stay as they are
};

// After any of them `observed` and `rows` are those of the states. The key is read on the GPU, except for shard and
// site. `market` has its memory on the GPU. `shards` too: `count` of them, `n` environments each.
using OptionsAdvanceKernel = void (*)(const OptionsShard* shards, int count, int64_t n, const MarketView& market,
                                      const OptionsRules& rules, const RandomKey* key, uint32_t reset_site,
                                      OptionsAdvance what, CUstream_st* stream);

namespace cuda {
void advance_options(const OptionsShard* shards, int count, int64_t n, const MarketView& market,
                     const OptionsRules& rules, const RandomKey* key, uint32_t reset_site, OptionsAdvance what,
                     CUstream_st* stream);
}  // namespace cuda

struct OptionsKernels {
  static constexpr KernelTableId kId{"options", 1};
  OptionsAdvanceKernel advance;
};

}  // namespace tandem
