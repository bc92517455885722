// market/cuda_options_environment.cu -- kernel of cuda_options_environment.h: a thread each environment.
//
// Prices are in double, and only of slots that are used. A thread's observation goes through shared memory (rows of 53
// words: no bank conflicts), from where the block writes whole lines. A new episode begins behind the observation: the
// one that ended shows its last day once more.
#include "kernels/gpu/intrinsics.h"
#include "market/cuda_options_environment.h"
#include "market/options_observation.h"

namespace tandem::cuda {
namespace {

constexpr int kOptionsThreads = 64;  // small blocks: a thousand environments should reach many SMs
constexpr int kSeenStride = kOwnFeatures + 1;

__device__ void step_environment(const RolloutEnvironments& shard, int64_t e, const MarketView& market,
                                 const OptionsRules& rules, const RolloutClock& clock, const RandomSource& key,
                                 int64_t t, float* seen) {
  OptionsState& state = reinterpret_cast<OptionsState*>(shard.states)[e];
  OptionsOutcome outcome;
  if (shard.idle[e] == 0)
    outcome = step_options(state, static_cast<int32_t>(shard.actions[e]), market, rules, NoTradeLog{});
  shard.rewards[e] = outcome.reward;
  shard.ends[e] = outcome.end;
  shard.rows[e] = state.day;
  observe_options(state, market, rules, seen);
  if (outcome.end != 0) reset_options(state, market, rules, clock.at(key.present(), t), e);
}

__global__ void __launch_bounds__(kOptionsThreads)
    step_each(RolloutEnvironments shard, int64_t n, MarketView market, OptionsRules rules, RolloutClock clock,
              RandomSource key, int64_t t) {
  __shared__ float seen[kOptionsThreads * kSeenStride];
  const int64_t first = int64_t{blockIdx.x} * kOptionsThreads, e = first + threadIdx.x;
  if (e < n) step_environment(shard, e, market, rules, clock, key, t, seen + threadIdx.x * kSeenStride);
  __syncthreads();
  const auto count = static_cast<int>((n - first < kOptionsThreads ? n - first : kOptionsThreads) * kOwnFeatures);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kOptionsThreads)
    shard.observed[first * kOwnFeatures + i] = seen[i / kOwnFeatures * kSeenStride + i % kOwnFeatures];
}

}  // namespace

void step_options_rollout(const RolloutEnvironments& shard, int64_t n, const MarketView& market,
                          const OptionsRules& rules, const RolloutClock& clock, const RandomSource& key, int64_t t,
                          CUstream_st* stream) {
  if (n < 1) return;
  const dim3 blocks(static_cast<unsigned>((n + kOptionsThreads - 1) / kOptionsThreads));
  TANDEM_LAUNCH("options step", step_each, blocks, dim3(kOptionsThreads), stream, shard, n, market, rules, clock, key,
                t);
}

}  // namespace tandem::cuda
