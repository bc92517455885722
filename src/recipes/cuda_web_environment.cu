// recipes/cuda_web_environment.cu -- the six worlds on a card, any of them in one launch (rl/card_world.h).
#include "kernels/cuda_portable.h"
#include "recipes/cuda_web_environment.h"
#include "rl/environment.h"
#include "world/web_agents.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads1 = 32;  // few environments: on as many multiprocessors as there are

template <class World>
__device__ void advance_one(World world, const CardSet& set, int64_t e, RandomKey key, uint32_t step_site,
                            uint32_t reset_site, bool only_observe) {
  WebTestState& state = reinterpret_cast<WebTestState*>(set.states)[e];
  if (!only_observe) {
    key.shard = set.shard;
    key.site = step_site;
    const StepResult result = step_one(world, state, set.actions[e], key, e);
    set.rewards[e] = result.reward;
    set.ends[e] = static_cast<int32_t>(result.done ? End::kOver : End::kNone);
    key.site = reset_site;
    if (result.done) reset_one(world, state, key, e);
  }
  observe_one(world, state, set.observed + e * kObservation);
}

__global__ void advance(const CardSet* sets, int64_t n, const RandomKey* key, uint32_t step_site, uint32_t reset_site,
                        bool only_observe) {
  const CardSet& set = sets[blockIdx.y];
  const int64_t e = int64_t{blockIdx.x} * kThreads1 + threadIdx.x;
  if (e >= n) return;
  const auto one = [&](auto world) { advance_one(world, set, e, *key, step_site, reset_site, only_observe); };
  switch (set.kind) {
    case 0:
      return one(RequirementsWorld{});
    case 1:
      return one(GenerationWorld{});
    case 2:
      return one(ExecutionWorld{});
    case 3:
      return one(ObservationWorld{});
    case 4:
      return one(AnalysisWorld{});
    default:
      return one(EvolutionWorld{});
  }
}

}  // namespace

void advance_web(const CardSet* sets, int count, int64_t n, const RandomKey* key, uint32_t step_site,
                 uint32_t reset_site, bool only_observe, CUstream_st* stream) {
  TANDEM_LAUNCH("web advance", advance, dim3(static_cast<unsigned>((n + kThreads1 - 1) / kThreads1), count),
                dim3(kThreads1), stream, sets, n, key, step_site, reset_site, only_observe);
}

}  // namespace tandem::cuda
