// market/cuda_options_environment.cu -- kernel of cuda_options_environment.h: a thread each environment.
//
// Prices are in double, and only of slots that are used. A thread's observation goes through shared memory (rows of 53
// words: no bank conflicts), from where the block writes whole lines.
#include "kernels/gpu/intrinsics.h"
#include "market/cuda_options_environment.h"
#include "market/options_observation.h"

namespace tandem::cuda {
namespace {

constexpr int kOptionsThreads = 64;  // small blocks: a thousand environments should reach many SMs
constexpr int kSeenStride = kOwnFeatures + 1;

__device__ void move_on(const OptionsShard& shard, int64_t e, const MarketView& market, const OptionsRules& rules,
                        const RandomKey* key_there, uint32_t reset_site, OptionsAdvance what) {
  OptionsState& state = shard.states[e];
  const bool ended = state.end != 0;
  const bool resets = what == OptionsAdvance::kReset ||
                      (ended && (what == OptionsAdvance::kResetEnded || what == OptionsAdvance::kStepOrReset));
  OptionsOutcome outcome;
  if (resets) {
    RandomKey key = *key_there;
    key.shard = shard.shard;
    key.site = reset_site;
    reset_options(state, market, rules, key, e);
  } else if (what == OptionsAdvance::kStep || what == OptionsAdvance::kStepOrReset) {
    outcome = step_options(state, shard.actions[e], market, rules, NoTradeLog{});
  }
  if (what == OptionsAdvance::kResetEnded) return;
  shard.rewards[e] = outcome.reward;
  shard.ends[e] = outcome.end;
}

__global__ void __launch_bounds__(kOptionsThreads)
    advance_each(const OptionsShard* shards, int64_t n, MarketView market, OptionsRules rules, const RandomKey* key,
                 uint32_t reset_site, OptionsAdvance what) {
  __shared__ float seen[kOptionsThreads * kSeenStride];
  const OptionsShard& shard = shards[blockIdx.y];
  const int64_t first = int64_t{blockIdx.x} * kOptionsThreads, e = first + threadIdx.x;
  if (e < n) {
    if (what != OptionsAdvance::kObserve) move_on(shard, e, market, rules, key, reset_site, what);
    const OptionsState& state = shard.states[e];
    shard.rows[e] = state.day;
    observe_options(state, market, rules, seen + threadIdx.x * kSeenStride);
  }
  __syncthreads();
  const auto count = static_cast<int>((n - first < kOptionsThreads ? n - first : kOptionsThreads) * kOwnFeatures);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kOptionsThreads)
    shard.observed[first * kOwnFeatures + i] = seen[i / kOwnFeatures * kSeenStride + i % kOwnFeatures];
}

}  // namespace

void advance_options(const OptionsShard* shards, int count, int64_t n, const MarketView& market,
                     const OptionsRules& rules, const RandomKey* key, uint32_t reset_site, OptionsAdvance what,
                     CUstream_st* stream) {
  if (count < 1 || n < 1) return;
  const dim3 blocks(static_cast<unsigned>((n + kOptionsThreads - 1) / kOptionsThreads), static_cast<unsigned>(count));
  TANDEM_LAUNCH("options advance", advance_each, blocks, dim3(kOptionsThreads), stream, shards, n, market, rules, key,
                reset_site, what);
}

}  // namespace tandem::cuda
