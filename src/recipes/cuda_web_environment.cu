// recipes/cuda_web_environment.cu -- the six web-test environments on a GPU, any of them in one launch.
#include "kernels/gpu/intrinsics.h"
#include "recipes/cuda_web_environment.h"
#include "rl/environment.h"
#include "world/web_agents.h"

namespace tandem::cuda {
namespace {

struct Sites {
  uint32_t step, reset;
};

// Calls f(Environment{}) for the shard's environment.
template <class F>
__device__ void with_environment(const ShardEnvironments& shard, F f) {
  switch (shard.kind) {
    case 0:
      return f(RequirementsEnvironment{});
    case 1:
      return f(GenerationEnvironment{});
    case 2:
      return f(ExecutionEnvironment{});
    case 3:
      return f(ObservationEnvironment{});
    case 4:
      return f(AnalysisEnvironment{});
    default:
      return f(EvolutionEnvironment{});
  }
}

__device__ void store_result(const ShardEnvironments& shard, int64_t e, const StepResult& result) {
  shard.rewards[e] = result.reward;
  shard.ends[e] = static_cast<int32_t>(result.done ? End::kTerminated : End::kNone);
}

// ---- many environments: a thread each ----

constexpr int kThreadsOfBlock = 32;

__global__ void advance(const ShardEnvironments* shards, int64_t n, const RandomKey* key_there, Sites sites,
                        bool only_observe) {
  const ShardEnvironments& shard = shards[blockIdx.y];
  const int64_t e = int64_t{blockIdx.x} * kThreadsOfBlock + threadIdx.x;
  if (e >= n) return;
  with_environment(shard, [&](auto environment) {
    WebTestState& state = reinterpret_cast<WebTestState*>(shard.states)[e];
    if (!only_observe) {
      RandomKey key = *key_there;
      key.shard = shard.shard;
      key.site = sites.step;
      const StepResult result = step_one(environment, state, shard.actions[e], key, e);
      store_result(shard, e, result);
      key.site = sites.reset;
      if (result.done) reset_one(environment, state, key, e);
    }
    observe_one(environment, state, shard.observed + e * kObservation);
  });
}

// ---- few environments: a warp each; lane 0 steps, all lanes draw random numbers and copy ----

constexpr int kWarpsOfBlock = 4;

struct WarpState {
  WebTestState state;
  alignas(16) float seen[kObservation];
  DrawnAhead ahead;
};

// The first random numbers of an environment's step, by all lanes. Not inlined: instruction-cache misses would stall.
__device__ __noinline__ void draw_ahead(DrawnAhead& ahead, uint64_t seed, uint64_t step, uint32_t shard, uint32_t site,
                                        int64_t e, uint32_t count) {
  const RandomKey key{seed, step, shard, site};
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t first = Draws::of(key, e).next;
  __syncwarp();
  if (lane == 0) {
    ahead.seed = seed;
    ahead.step = step;
    ahead.first = first;
    ahead.shard = shard;
    ahead.site = site;
  }
  if (lane < count / 4) {
    const PhiloxBlock block = random_block(key, first / 4 + lane);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) ahead.word[4 * lane + i] = block.word[i];
  }
  __syncwarp();
#pragma unroll 1
  for (uint32_t i = lane; i < count; i += 32) ahead.normal[i] = normal_from_u32(ahead.word[i]);
  __syncwarp();
}
__device__ DrawsAhead drawn_ahead(DrawnAhead& ahead, const RandomKey& key, int64_t e, uint32_t count) {
  draw_ahead(ahead, key.seed, key.step, key.shard, key.site, e, count);
  return {ahead, count};
}

template <class Environment>
__device__ void step_by_warp(Environment environment, const ShardEnvironments& shard, int64_t e, RandomKey key,
                             Sites sites, bool only_observe, WarpState& mine) {
  const int lane = threadIdx.x % 32;
  const auto words = [](void* p) { return static_cast<char*>(__builtin_assume_aligned(p, 4)); };
  char* const there = words(reinterpret_cast<WebTestState*>(shard.states) + e);
  char* const here = words(&mine.state);
  constexpr int kBytes = sizeof(typename Environment::State);  // what follows them in the union stays 0
  static_assert(kBytes % 4 == 0);
  for (int i = 4 * lane; i < kBytes; i += 128) memcpy(here + i, there + i, 4);
  __syncwarp();
  if (!only_observe) {
    key.shard = shard.shard;
    key.site = sites.step;
    const DrawsAhead draws = drawn_ahead(mine.ahead, key, e, DrawnAhead::kOfStep);
    int done = 0;
    if (lane == 0) {
      const StepResult result = step_one(environment, mine.state, shard.actions[e], draws);
      store_result(shard, e, result);
      done = result.done;
    }
    if (__shfl_sync(0xFFFFFFFFu, done, 0)) {  // as reset_one() does
      __syncwarp();
      for (int i = 4 * lane; i < kBytes; i += 128) memset(here + i, 0, 4);
      key.site = sites.reset;
      DrawsAhead again = drawn_ahead(mine.ahead, key, e, DrawnAhead::kOfReset);
      if (lane == 0) Environment::reset(state_of(mine.state, environment), again);
    }
  }
  if (lane == 0) observe_one(environment, mine.state, mine.seen);
  __syncwarp();
  if (!only_observe)
    for (int i = 4 * lane; i < kBytes; i += 128) memcpy(there + i, here + i, 4);
  static_assert(kObservation == 4 * 32);
  reinterpret_cast<float4*>(shard.observed + e * kObservation)[lane] = reinterpret_cast<const float4*>(mine.seen)[lane];
}

__global__ void __launch_bounds__(kWarpsOfBlock * 32)
    advance_by_warps(const ShardEnvironments* shards, int64_t n, const RandomKey* key, Sites sites, bool only_observe) {
  [[maybe_unused]] __shared__ WarpState states[kWarpsOfBlock];
  const ShardEnvironments& shard = shards[blockIdx.y];
  const int warp = threadIdx.x / 32;
  const int64_t e = int64_t{blockIdx.x} * kWarpsOfBlock + warp;
  if (e >= n) return;
  with_environment(
      shard, [&](auto environment) { step_by_warp(environment, shard, e, *key, sites, only_observe, states[warp]); });
}

constexpr int64_t kManyEnvironments = 16384;

}  // namespace

void advance_web(const ShardEnvironments* shards, int count, int64_t n, const RandomKey* key, uint32_t step_site,
                 uint32_t reset_site, bool only_observe, CUstream_st* stream) {
  const Sites sites{step_site, reset_site};
  const auto blocks = [&](int each) { return dim3(static_cast<unsigned>((n + each - 1) / each), count); };
  if (count * n >= kManyEnvironments)
    TANDEM_LAUNCH("web advance", advance, blocks(kThreadsOfBlock), dim3(kThreadsOfBlock), stream, shards, n, key, sites,
                  only_observe);
  else
    TANDEM_LAUNCH("web advance", advance_by_warps, blocks(kWarpsOfBlock), dim3(kWarpsOfBlock * 32), stream, shards, n,
                  key, sites, only_observe);
}

}  // namespace tandem::cuda
