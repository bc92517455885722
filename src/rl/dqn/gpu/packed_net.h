// rl/dqn/gpu/packed_net.h -- the packed weights of a DQN's nets (kernels/gpu/packed_weights.h), and where its dropout
// bits lie.
#pragma once

#include "kernels/gpu/dropout_bits.h"
#include "kernels/gpu/packed_weights.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

__device__ inline PackedFragment* packed_of(const DqnShape& shape, const DqnWork& work, int job) {
  return static_cast<PackedFragment*>(work.packed) + int64_t{job} * PackedNetLayout(shape).all;
}

#if defined(TANDEM_TENSOR_CORES)
// Which of a job's matrices fragment `at` belongs to.
__device__ inline PackedSource packed_source(const DqnShape& shape, const DqnOffsets& offsets, const DqnJob& job,
                                             int at) {
  const PackedNetLayout layout(shape);
  const auto forward = [](const float* from, int k, int first) { return PackedSource{from, k, k, 1, first}; };
  const auto backward = [](const float* from, int rows, int k, int first) {
    return PackedSource{from, k, 1, rows, first};
  };
  if (at >= layout.backward_heads)
    return backward(job.net + offsets.heads, shape.hidden2, 2 * shape.head, layout.backward_heads);
  if (at >= layout.backward2) return backward(job.net + offsets.w2, shape.hidden1, shape.hidden2, layout.backward2);
  const int first = at < layout.of_net ? 0 : layout.of_net;
  const float* const net = first == 0 ? job.net : job.target;
  if (at - first < layout.w2) return forward(net + offsets.w1, shape.state, first + layout.w1);
  if (at - first < layout.heads) return forward(net + offsets.w2, shape.hidden1, first + layout.w2);
  return forward(net + offsets.heads, shape.hidden2, first + layout.heads);
}
#endif

// Packs a job's fragments from `first` on, below `end`: one to a thread of the block.
__device__ inline void pack_fragments([[maybe_unused]] const DqnShape& shape,
                                      [[maybe_unused]] const DqnOffsets& offsets, [[maybe_unused]] const DqnWork& work,
                                      [[maybe_unused]] int job, [[maybe_unused]] int first, [[maybe_unused]] int end) {
#if defined(TANDEM_TENSOR_CORES)
  const int at = first + static_cast<int>(threadIdx.x);
  if (at >= end) return;
  const PackedSource source = packed_source(shape, offsets, work.jobs[job], at);
  packed_of(shape, work, job)[at] = shape.blocks.precision == Precision::kBf16
                                        ? pack_fragment<Precision::kBf16>(source, at)
                                        : pack_fragment<Precision::kFp16>(source, at);
#endif
}

// This lane's word of a row's dropout bits, where they are drawn beforehand (DqnWork::dropout_bits).
__device__ inline uint32_t* dropout_bits_at(const DqnShape& shape, const DqnWork& work, uint32_t site, int job_shard,
                                            int row) {
  const int64_t layer = static_cast<int64_t>(site - kDropout) * shape.job_shards();
  return work.dropout_bits + ((layer + job_shard) * shape.shard_batch + row) * 32 + threadIdx.x % 32;
}
static_assert(kMostGpuWidth <= kMostDropoutWidth);

}  // namespace tandem::cuda
