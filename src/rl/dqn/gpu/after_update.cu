// rl/dqn/gpu/after_update.cu -- what follows an update on a GPU: the largest priority, a step's outputs, packed
// weights.
#include "kernels/gpu/tree_sum.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/packed_net.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

constexpr int kAfterThreads = 128;

__device__ float along_tree(const DqnShape& shape, const float* of_shards) {
  TreeStack<1, kMostGpuDepth> stack;
  for (int s = 0; s < shape.count; ++s) stack.push({of_shards[s]}, shape.merges[s]);
  return stack.top()[0];
}

__global__ void __launch_bounds__(kAfterThreads) pack_weights(DqnShape shape, DqnOffsets offsets, DqnWork work) {
  pack_fragments(shape, offsets, work, blockIdx.y, blockIdx.x * kAfterThreads, PackedNetLayout(shape).all);
}

// A job's first block: TD errors, the largest priority, the step's outputs. Its others pack the net's weights for the
// next decisions; queue_act() packs the rest.
__global__ void __launch_bounds__(kAfterThreads)
    after_update(DqnShape shape, DqnOffsets offsets, DqnWork work, const UpdateDecision* decision) {
  const int index = blockIdx.y;
  if (blockIdx.x > 0) {
    pack_fragments(shape, offsets, work, index, (blockIdx.x - 1) * kAfterThreads, PackedNetLayout(shape).of_net);
    return;
  }
  const DqnJob& job = work.jobs[index];
  __shared__ float largest[kAfterThreads / 32];
  float most = 0;
  for (int k = threadIdx.x; k < shape.batch; k += kAfterThreads) {
    most = job.td_errors[k] > most ? job.td_errors[k] : most;
    if (decision->skip) job.td_errors[k] = -1.0f;
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(kFullMask, most, width);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kAfterThreads / 32; ++i) most = largest[i] > most ? largest[i] : most;
  if (!decision->skip) {
    const int64_t priority = priority_of(most, shape.alpha);
    if (priority > *job.max_priority) *job.max_priority = priority;
  }
  const int64_t first = int64_t{index} * shape.count;
  StepOutputs outputs{work.job_sums[2 * index], work.job_sums[2 * index + 1],
                      along_tree(shape, work.shard_returns + first), 0, 0};
  for (int s = 0; s < shape.count; ++s) outputs.episodes += work.shard_episodes[first + s];
  work.outputs[index] = outputs;
}

}  // namespace

void queue_after_update(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                        const UpdateDecision* decision, CUstream_st* stream) {
  const unsigned more = work.packed_resident && uses_packed_weights(shape, offsets, work)
                            ? ceil_div(PackedNetLayout(shape).of_net, kAfterThreads)
                            : 0;
  TANDEM_LAUNCH("dqn after update", after_update, dim3(1 + more, shape.jobs), dim3(kAfterThreads), stream, shape,
                offsets, work, decision);
}

void queue_pack_weights(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  if (uses_packed_weights(shape, offsets, work))
    TANDEM_LAUNCH("dqn pack weights", pack_weights,
                  dim3(ceil_div(PackedNetLayout(shape).all, kAfterThreads), shape.jobs), dim3(kAfterThreads), stream,
                  shape, offsets, work);
}

}  // namespace tandem::cuda
