// rl/dqn/gpu/dueling_head.h -- from the head features of a row to the Q values of its actions and the action taken: one
// warp a row.
#pragma once

#include "kernels/gpu/warp.h"
#include "kernels/random_fill_math.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

// The Q values of all actions, value + (advantage - mean advantage); every lane gets them. The actions' warp sums are
// computed together (warp_sums()), or one after the other where registers are scarce: the same bits.
static_assert(kMaxGpuActions == 16);
template <bool kSumsTogether = true>
__device__ void q_values_of(const DqnShape& shape, const DqnOffsets& offsets, const float* net,
                            const float* head_features, float (&q)[kMaxGpuActions]) {
  const int lane = threadIdx.x % 32;
  const float* const value = net + offsets.value;
  const float* const advantage = net + offsets.advantage;
  float state_value = 0;
#pragma unroll
  for (int a = 0; a < kMaxGpuActions; ++a) q[a] = 0;
  const auto dot = [](float4 x, float4 y, float sum) {
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
  };
  for (int i = 4 * lane; i < shape.head; i += 128) {
    const float4 x = load4(head_features + shape.head + i);
    state_value = dot(load4(head_features + i), load4(value + i), state_value);
#pragma unroll
    for (int a = 0; a < kMaxGpuActions; ++a)  // no branch, so that all loads are in flight together
      q[a] = dot(x, load4(advantage + (a < shape.actions ? a : 0) * shape.head + i), q[a]);
  }
  float mean = 0;
  if constexpr (kSumsTogether) {
    const int own = lane / 2 < shape.actions ? lane / 2 : 0;  // the action whose sum warp_sums() gives this lane
    const float bias = net[offsets.advantage_bias + own];
    state_value = warp_sum(state_value) + net[offsets.value_bias];
    const float sum = warp_sums(q) + bias;
#pragma unroll
    for (int a = 0; a < kMaxGpuActions; ++a) {
      q[a] = __shfl_sync(kFullMask, sum, 2 * a);
      mean = a < shape.actions ? mean + q[a] : mean;
    }
  } else {
    state_value = warp_sum(state_value) + net[offsets.value_bias];
#pragma unroll
    for (int a = 0; a < kMaxGpuActions; ++a)
      if (a < shape.actions) {
        q[a] = warp_sum(q[a]) + net[offsets.advantage_bias + a];
        mean = mean + q[a];
      }
  }
  mean = mean / static_cast<float>(shape.actions);
#pragma unroll
  for (int a = 0; a < kMaxGpuActions; ++a) q[a] = state_value + (q[a] - mean);
}

__device__ inline int best_action(const DqnShape& shape, const float (&q)[kMaxGpuActions]) {
  int best = 0;
  float best_q = q[0];
#pragma unroll
  for (int a = 1; a < kMaxGpuActions; ++a)
    if (a < shape.actions && q[a] > best_q) {
      best_q = q[a];
      best = a;
    }
  return best;
}

// The leaf (DqnShard) that environment e's next step goes to.
__device__ inline int64_t next_leaf(const DqnShape& shape, const DqnShard& shard, int e) {
  return e * shape.ring_rows + shard.written[e] % shape.ring_rows;
}

// Environment e's observation goes to its ring, by one warp. What store() will need of the ring and of the priority
// tree is prefetched to L2: in a large buffer it would miss.
__device__ inline void store_observation(const DqnShape& shape, const DqnWork& work, int agent_shard, int e,
                                         int64_t leaf) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{agent_shard} * shape.environments + e;
  const DqnShard& shard = work.shards[agent_shard];
  for (int i = lane; i < shape.observation_size; i += 32)
    shard.seen[leaf * shape.observation_size + i] = work.observed[row * shape.observation_size + i];
  if (lane < shape.levels)
    prefetch_l2(shard.tree + shape.level_first[lane] + (leaf >> (PriorityTree::kFanBits * lane)));
  else if (lane == shape.levels)
    prefetch_l2(shard.rows + leaf);
}

// Epsilon-greedy: environment e's random action, or -1 where it takes the best one.
__device__ inline int explored_action(const DqnShape& shape, const DqnWork& work, int agent_shard, int e) {
  RandomKey key = work.params->key;
  key.shard = work.environments[agent_shard].shard;
  key.site = kExplore;
  if (!(static_cast<double>(random_uniform(key, static_cast<uint64_t>(e))) < work.params->explore)) return -1;
  key.site = kMove;
  return static_cast<int>(random_below(key, static_cast<uint64_t>(e), static_cast<uint32_t>(shape.actions)));
}

// Environment e's next action, by one warp, from the head features of its observation.
__device__ inline void decide_row(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                                  const float* net, int agent_shard, int e, int explored, const float* head_features) {
  float q[kMaxGpuActions];
  q_values_of(shape, offsets, net, head_features, q);
  if (threadIdx.x % 32 == 0)
    work.actions[int64_t{agent_shard} * shape.environments + e] = explored >= 0 ? explored : best_action(shape, q);
}

}  // namespace tandem::cuda
