// recipes/cuda_web_environment.cu -- the six worlds on a GPU, any of them in one launch (rl/gpu_environment.h).
#include "kernels/gpu/intrinsics.h"
#include "recipes/cuda_web_environment.h"
#include "rl/environment.h"
#include "world/web_agents.h"

namespace tandem::cuda {
namespace {

struct Sites {
  uint32_t step, reset;
};

// Calls f(World{}) for the set's world.
template <class F>
__device__ void with_world(const GpuSet& set, F f) {
  switch (set.kind) {
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

__device__ void tell(const GpuSet& set, int64_t e, const StepResult& result) {
  set.rewards[e] = result.reward;
  set.ends[e] = static_cast<int32_t>(result.done ? End::kOver : End::kNone);
}

// ---- many environments: a thread each ----

constexpr int kThreadsOfBlock = 32;

__global__ void advance(const GpuSet* sets, int64_t n, const RandomKey* key_there, Sites sites, bool only_observe) {
  const GpuSet& set = sets[blockIdx.y];
  const int64_t e = int64_t{blockIdx.x} * kThreadsOfBlock + threadIdx.x;
  if (e >= n) return;
  with_world(set, [&](auto world) {
    WebTestState& state = reinterpret_cast<WebTestState*>(set.states)[e];
    if (!only_observe) {
      RandomKey key = *key_there;
      key.shard = set.shard;
      key.site = sites.step;
      const StepResult result = step_one(world, state, set.actions[e], key, e);
      tell(set, e, result);
      key.site = sites.reset;
      if (result.done) reset_one(world, state, key, e);
    }
    observe_one(world, state, set.observed + e * kObservation);
  });
}

// ---- few: a warp each, of which one lane plays and all draw and copy ----

constexpr int kWarpsOfBlock = 4;

struct Played {
  WebTestState state;
  alignas(16) float seen[kObservation];
  DrawnAhead ahead;
};

// What an environment draws first, by all lanes. Called, so that its code is there once: a GPU waits for code.
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

template <class World>
__device__ void play(World world, const GpuSet& set, int64_t e, RandomKey key, Sites sites, bool only_observe,
                     Played& mine) {
  const int lane = threadIdx.x % 32;
  const auto words = [](void* p) { return static_cast<char*>(__builtin_assume_aligned(p, 4)); };
  char* const there = words(reinterpret_cast<WebTestState*>(set.states) + e);
  char* const here = words(&mine.state);
  constexpr int kBytes = sizeof(typename World::State);  // what follows them in the union stays 0
  static_assert(kBytes % 4 == 0);
  for (int i = 4 * lane; i < kBytes; i += 128) memcpy(here + i, there + i, 4);
  __syncwarp();
  if (!only_observe) {
    key.shard = set.shard;
    key.site = sites.step;
    const DrawsAhead draws = drawn_ahead(mine.ahead, key, e, DrawnAhead::kOfStep);
    int done = 0;
    if (lane == 0) {
      const StepResult result = step_one(world, mine.state, set.actions[e], draws);
      tell(set, e, result);
      done = result.done;
    }
    if (__shfl_sync(0xFFFFFFFFu, done, 0)) {  // as reset_one() does
      __syncwarp();
      for (int i = 4 * lane; i < kBytes; i += 128) memset(here + i, 0, 4);
      key.site = sites.reset;
      DrawsAhead again = drawn_ahead(mine.ahead, key, e, DrawnAhead::kOfReset);
      if (lane == 0) World::reset(state_of(mine.state, world), again);
    }
  }
  if (lane == 0) observe_one(world, mine.state, mine.seen);
  __syncwarp();
  if (!only_observe)
    for (int i = 4 * lane; i < kBytes; i += 128) memcpy(there + i, here + i, 4);
  static_assert(kObservation == 4 * 32);
  reinterpret_cast<float4*>(set.observed + e * kObservation)[lane] = reinterpret_cast<const float4*>(mine.seen)[lane];
}

__global__ void __launch_bounds__(kWarpsOfBlock * 32)
    advance_by_warps(const GpuSet* sets, int64_t n, const RandomKey* key, Sites sites, bool only_observe) {
  [[maybe_unused]] __shared__ Played played[kWarpsOfBlock];
  const GpuSet& set = sets[blockIdx.y];
  const int warp = threadIdx.x / 32;
  const int64_t e = int64_t{blockIdx.x} * kWarpsOfBlock + warp;
  if (e >= n) return;
  with_world(set, [&](auto world) { play(world, set, e, *key, sites, only_observe, played[warp]); });
}

constexpr int64_t kManyEnvironments = 16384;

}  // namespace

void advance_web(const GpuSet* sets, int count, int64_t n, const RandomKey* key, uint32_t step_site,
                 uint32_t reset_site, bool only_observe, CUstream_st* stream) {
  const Sites sites{step_site, reset_site};
  const auto blocks = [&](int each) { return dim3(static_cast<unsigned>((n + each - 1) / each), count); };
  if (count * n >= kManyEnvironments)
    TANDEM_LAUNCH("web advance", advance, blocks(kThreadsOfBlock), dim3(kThreadsOfBlock), stream, sets, n, key, sites,
                  only_observe);
  else
    TANDEM_LAUNCH("web advance", advance_by_warps, blocks(kWarpsOfBlock), dim3(kWarpsOfBlock * 32), stream, sets, n,
                  key, sites, only_observe);
}

}  // namespace tandem::cuda
