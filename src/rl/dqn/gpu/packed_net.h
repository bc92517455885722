// rl/dqn/gpu/packed_net.h -- the packed weights of a DQN's nets (kernels/gpu/packed_weights.h), and where its dropout
// bits lie.
#pragma once

#include "kernels/gpu/dropout_bits.h"
#include "kernels/gpu/packed_weights.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

__device__ inline PackedFragment* packed_of(const DqnShape& shape, const DqnWork& work, int agent) {
  return static_cast<PackedFragment*>(work.packed) + int64_t{agent} * PackedNetLayout(shape).per_agent;
}

#if defined(TANDEM_TENSOR_CORES)
// The matrix that an agent's fragment number `fragment` belongs to (PackedNetLayout).
__device__ inline PackedSource packed_source(const DqnShape& shape, const DqnOffsets& offsets, const GpuDqnAgent& agent,
                                             int fragment) {
  const PackedNetLayout layout(shape);
  const auto forward = [](const float* matrix, int k, int first) { return PackedSource{matrix, k, k, 1, first}; };
  const auto backward = [](const float* matrix, int rows, int k, int first) {
    return PackedSource{matrix, k, 1, rows, first};
  };
  if (fragment >= layout.backward_heads)
    return backward(agent.net + offsets.heads, shape.hidden2, 2 * shape.head, layout.backward_heads);
  if (fragment >= layout.backward2)
    return backward(agent.net + offsets.w2, shape.hidden1, shape.hidden2, layout.backward2);
  const int first = fragment < layout.per_net ? 0 : layout.per_net;
  const float* const net = first == 0 ? agent.net : agent.target;
  if (fragment - first < layout.w2) return forward(net + offsets.w1, shape.observation_size, first + layout.w1);
  if (fragment - first < layout.heads) return forward(net + offsets.w2, shape.hidden1, first + layout.w2);
  return forward(net + offsets.heads, shape.hidden2, first + layout.heads);
}
#endif

// Packs an agent's fragments from `first` on, below `end`: one to a thread of the block.
__device__ inline void pack_fragments([[maybe_unused]] const DqnShape& shape,
                                      [[maybe_unused]] const DqnOffsets& offsets, [[maybe_unused]] const DqnWork& work,
                                      [[maybe_unused]] int agent, [[maybe_unused]] int first,
                                      [[maybe_unused]] int end) {
#if defined(TANDEM_TENSOR_CORES)
  const int fragment = first + static_cast<int>(threadIdx.x);
  if (fragment >= end) return;
  const PackedSource source = packed_source(shape, offsets, work.agents[agent], fragment);
  packed_of(shape, work, agent)[fragment] = shape.blocks.precision == Precision::kBf16
                                                ? pack_fragment<Precision::kBf16>(source, fragment)
                                                : pack_fragment<Precision::kFp16>(source, fragment);
#endif
}

// This lane's word of a row's dropout bits, where they are drawn beforehand (DqnWork::dropout_bits).
__device__ inline uint32_t* dropout_bits_at(const DqnShape& shape, const DqnWork& work, uint32_t site, int agent_shard,
                                            int row) {
  const int64_t layer = static_cast<int64_t>(site - kDropout) * shape.agent_shards();
  return work.dropout_bits + ((layer + agent_shard) * shape.shard_batch + row) * 32 + threadIdx.x % 32;
}
static_assert(kMaxGpuWidth <= kMaxDropoutWidth);

}  // namespace tandem::cuda
