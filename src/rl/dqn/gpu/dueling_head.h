// rl/dqn/gpu/dueling_head.h -- from the heads' features of a row to the values of its actions, and what is done, by one
// warp.
#pragma once

#include "kernels/random_fill_math.h"
#include "rl/dqn/dqn_gpu.h"
#include "rl/dqn/gpu/gemm_tiles.h"

namespace tandem::cuda {

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x = x + __shfl_xor_sync(kWholeWarp, x, width);
  return x;
}

// warp_sum() of sixteen numbers at once, to the same bits: lanes 2 i and 2 i + 1 get the i-th. One after the other they
// would wait five times for every one.
template <int kCount = 8>  // that are left to a lane
__device__ float warp_sums(float (&x)[16]) {
  const bool upper = (threadIdx.x & 2 * kCount) != 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float kept = upper ? x[i + kCount] : x[i], sent = upper ? x[i] : x[i + kCount];
    x[i] = kept + __shfl_xor_sync(kWholeWarp, sent, 2 * kCount);
  }
  if constexpr (kCount > 1)
    return warp_sums<kCount / 2>(x);
  else
    return x[0] + __shfl_xor_sync(kWholeWarp, x[0], 1);
}

// The values of all actions from a row of the heads' features; every lane gets them. Their sums over lanes are made
// together, or one after the other where registers are few: the same bits.
static_assert(kMostGpuActions == 16);
template <bool kTogether = true>
__device__ void values_of(const DqnShape& shape, const DqnPlaces& places, const float* net, const float* both,
                          float (&q)[kMostGpuActions]) {
  const int lane = threadIdx.x % 32;
  const float* const value = net + places.value;
  const float* const advantage = net + places.advantage;
  float worth = 0;
#pragma unroll
  for (int a = 0; a < kMostGpuActions; ++a) q[a] = 0;
  const auto fours = [](const float* at) { return *reinterpret_cast<const float4*>(at); };
  const auto dot = [](float4 x, float4 y, float sum) {
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
  };
  for (int i = 4 * lane; i < shape.head; i += 128) {
    const float4 x = fours(both + shape.head + i);
    worth = dot(fours(both + i), fours(value + i), worth);
#pragma unroll
    for (int a = 0; a < kMostGpuActions; ++a)  // no branch: they are fetched together
      q[a] = dot(x, fours(advantage + (a < shape.actions ? a : 0) * shape.head + i), q[a]);
  }
  float mean = 0;
  if constexpr (kTogether) {
    const int own = lane / 2 < shape.actions ? lane / 2 : 0;  // the action whose sum comes to this lane
    const float bias = net[places.advantage_bias + own];
    worth = warp_sum(worth) + net[places.value_bias];
    const float sum = warp_sums(q) + bias;
#pragma unroll
    for (int a = 0; a < kMostGpuActions; ++a) {
      q[a] = __shfl_sync(kWholeWarp, sum, 2 * a);
      mean = a < shape.actions ? mean + q[a] : mean;
    }
  } else {
    worth = warp_sum(worth) + net[places.value_bias];
#pragma unroll
    for (int a = 0; a < kMostGpuActions; ++a)
      if (a < shape.actions) {
        q[a] = warp_sum(q[a]) + net[places.advantage_bias + a];
        mean = mean + q[a];
      }
  }
  mean = mean / static_cast<float>(shape.actions);
#pragma unroll
  for (int a = 0; a < kMostGpuActions; ++a) q[a] = worth + (q[a] - mean);
}

__device__ inline int best_of(const DqnShape& shape, const float (&q)[kMostGpuActions]) {
  int best = 0;
  float most = q[0];
#pragma unroll
  for (int a = 1; a < kMostGpuActions; ++a)
    if (a < shape.actions && q[a] > most) {
      most = q[a];
      best = a;
    }
  return best;
}

// Where in its shard's ring environment e's next decision goes.
__device__ inline int64_t next_leaf(const DqnShape& shape, const DqnShard& shard, int e) {
  return e * shape.rows + shard.written[e] % shape.rows;
}

// What environment e of a set shows goes to its ring, by one warp. And what store() will need of the ring and of the
// tree above it is asked for: it finds few of them nearby where there are many.
__device__ inline void remember_row(const DqnShape& shape, const DqnWork& work, int set, int e, int64_t leaf) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{set} * shape.environments + e;
  const DqnShard& shard = work.shards[set];
  for (int i = lane; i < shape.state; i += 32)
    shard.seen[leaf * shape.state + i] = work.observed[row * shape.state + i];
  if (lane < shape.levels)
    fetch_nearer(shard.tree + shape.level_first[lane] + (leaf >> (PriorityTree::kFanBits * lane)));
  else if (lane == shape.levels)
    fetch_nearer(shard.rows + leaf);
}

// What environment e of a set does by chance, whatever its values are; or -1.
__device__ inline int chance_of(const DqnShape& shape, const DqnWork& work, int set, int e) {
  RandomKey key = work.order->key;
  key.shard = work.worlds[set].shard;
  key.site = kExplore;
  if (!(static_cast<double>(random_uniform(key, static_cast<uint64_t>(e))) < work.order->explore)) return -1;
  key.site = kMove;
  return static_cast<int>(random_below(key, static_cast<uint64_t>(e), static_cast<uint32_t>(shape.actions)));
}

// What environment e of a set does next, by one warp, from the heads' features of what it shows.
__device__ inline void decide_row(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, const float* net,
                                  int set, int e, int by_chance, const float* both) {
  float q[kMostGpuActions];
  values_of(shape, places, net, both, q);
  if (threadIdx.x % 32 == 0)
    work.actions[int64_t{set} * shape.environments + e] = by_chance >= 0 ? by_chance : best_of(shape, q);
}

}  // namespace tandem::cuda
