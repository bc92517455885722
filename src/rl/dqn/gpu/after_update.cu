// rl/dqn/gpu/after_update.cu -- what follows an update on a GPU: the largest priority, a step's outputs, packed
// weights.
#include "kernels/gpu/tree_sum.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/packed_net.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

constexpr int kAfterThreads = 128;

__device__ float tree_sum_of(const DqnShape& shape, const float* shard_values) {
  TreeStack<1, kMaxGpuPending> stack;
  for (int s = 0; s < shape.local_shards; ++s) stack.push({shard_values[s]}, shape.merges[s]);
  return stack.top()[0];
}

// Grid: (blocks of fragments, agents).
__global__ void __launch_bounds__(kAfterThreads) pack_weights(DqnShape shape, DqnOffsets offsets, DqnWork work) {
  pack_fragments(shape, offsets, work, blockIdx.y, blockIdx.x * kAfterThreads, PackedNetLayout(shape).per_agent);
}

// Grid: (1 + blocks that pack, agents). An agent's first block: TD errors, the largest priority, the step's outputs.
// Its others pack the net's weights for the next decisions; queue_act() packs the rest.
__global__ void __launch_bounds__(kAfterThreads)
    after_update(DqnShape shape, DqnOffsets offsets, DqnWork work, const UpdateDecision* decision) {
  const int agent_index = blockIdx.y;
  if (blockIdx.x > 0) {
    pack_fragments(shape, offsets, work, agent_index, (blockIdx.x - 1) * kAfterThreads, PackedNetLayout(shape).per_net);
    return;
  }
  const GpuDqnAgent& agent = work.agents[agent_index];
  __shared__ float warp_maxima[kAfterThreads / 32];
  float max_error = 0;
  for (int k = threadIdx.x; k < shape.batch; k += kAfterThreads) {
    max_error = agent.td_errors[k] > max_error ? agent.td_errors[k] : max_error;
    if (decision->skip) agent.td_errors[k] = -1.0f;
  }
#pragma unroll
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) {
    const float other = __shfl_xor_sync(kFullMask, max_error, lane_mask);
    max_error = other > max_error ? other : max_error;
  }
  if (threadIdx.x % 32 == 0) warp_maxima[threadIdx.x / 32] = max_error;
  __syncthreads();  // the maxima of all warps
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kAfterThreads / 32; ++i) max_error = warp_maxima[i] > max_error ? warp_maxima[i] : max_error;
  if (!decision->skip) {
    const int64_t priority = priority_of(max_error, shape.alpha);
    if (priority > *agent.max_priority) *agent.max_priority = priority;
  }
  const int64_t first_agent_shard = int64_t{agent_index} * shape.local_shards;
  StepOutputs outputs{work.agent_sums[2 * agent_index], work.agent_sums[2 * agent_index + 1], 0, 0, 0};
  if (!work.acted_by_all) outputs.returns = tree_sum_of(shape, work.shard_returns + first_agent_shard);
  for (int s = 0; s < shape.local_shards; ++s) outputs.episodes += work.shard_episodes[first_agent_shard + s];
  work.outputs[agent_index] = outputs;
}

// Grid: agents.
__global__ void __launch_bounds__(kAfterThreads) combined(DqnShape shape, DqnWork work, const float* tail) {
  if (is_held(work)) return;
  const int agent = blockIdx.x;
  const float* const mine = tail + int64_t{agent} * (2 + shape.batch);
  for (int k = threadIdx.x; k < shape.batch; k += kAfterThreads) work.agents[agent].td_errors[k] = mine[2 + k];
  if (threadIdx.x < 2) work.agent_sums[2 * agent + threadIdx.x] = mine[threadIdx.x];
}

}  // namespace

void queue_combined(const DqnShape& shape, const DqnWork& work, const float* tail, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn combined", combined, dim3(shape.agents), dim3(kAfterThreads), stream, shape, work, tail);
}

void queue_after_update(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                        const UpdateDecision* decision, CUstream_st* stream) {
  const unsigned packing_blocks = work.packed_resident && uses_packed_weights(shape, offsets, work)
                                      ? ceil_div(PackedNetLayout(shape).per_net, kAfterThreads)
                                      : 0;
  TANDEM_LAUNCH("dqn after update", after_update, dim3(1 + packing_blocks, shape.agents), dim3(kAfterThreads), stream,
                shape, offsets, work, decision);
}

void queue_pack_weights(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream) {
  if (uses_packed_weights(shape, offsets, work))
    TANDEM_LAUNCH("dqn pack weights", pack_weights,
                  dim3(ceil_div(PackedNetLayout(shape).per_agent, kAfterThreads), shape.agents), dim3(kAfterThreads),
                  stream, shape, offsets, work);
}

}  // namespace tandem::cuda
