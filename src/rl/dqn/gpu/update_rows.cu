// rl/dqn/gpu/update_rows.cu -- what follows an update on a GPU: errors and priorities, what is told, weights in halves.
#include "kernels/gpu/intrinsics.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/packed_weights.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

constexpr int kApplyThreads = 128;

__device__ float along_tree(const DqnShape& shape, const float* of_shards) {
  Stack<1, kMostGpuDepth> stack;
  for (int s = 0; s < shape.count; ++s) stack.push({of_shards[s]}, shape.merges[s]);
  return stack.top()[0];
}

__global__ void __launch_bounds__(kApplyThreads) keep(DqnShape shape, DqnPlaces places, DqnWork work) {
  keep_pieces(shape, places, work, blockIdx.y, blockIdx.x * kApplyThreads, DqnHalves(shape).all);
}

// A job's first block: errors, the largest priority, what is told. Its others keep the net's weights in halves, for the
// next decisions; queue_act() keeps the rest.
__global__ void __launch_bounds__(kApplyThreads)
    applied(DqnShape shape, DqnPlaces places, DqnWork work, const UpdateDecision* plan) {
  const int index = blockIdx.y;
  if (blockIdx.x > 0) {
    keep_pieces(shape, places, work, index, (blockIdx.x - 1) * kApplyThreads, DqnHalves(shape).of_net);
    return;
  }
  const DqnJob& job = work.jobs[index];
  __shared__ float largest[kApplyThreads / 32];
  float most = 0;
  for (int k = threadIdx.x; k < shape.batch; k += kApplyThreads) {
    most = job.errors[k] > most ? job.errors[k] : most;
    if (plan->skip) job.errors[k] = -1.0f;
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, most, width);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kApplyThreads / 32; ++i) most = largest[i] > most ? largest[i] : most;
  if (!plan->skip) {
    const int64_t priority = priority_of(most, shape.alpha);
    if (priority > job.tops[0]) job.tops[0] = priority;
  }
  const int64_t first = int64_t{index} * shape.count;
  StepOutputs told{work.job_sums[2 * index], work.job_sums[2 * index + 1],
                   along_tree(shape, work.shard_returns + first), 0, 0};
  for (int s = 0; s < shape.count; ++s) told.episodes += work.shard_episodes[first + s];
  work.told[index] = told;
}

}  // namespace

void queue_applied(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, const UpdateDecision* plan,
                   CUstream_st* stream) {
  const unsigned more =
      work.halves_kept && takes_halves(shape, places, work) ? cuts(DqnHalves(shape).of_net, kApplyThreads) : 0;
  TANDEM_LAUNCH("dqn applied", applied, dim3(1 + more, shape.jobs), dim3(kApplyThreads), stream, shape, places, work,
                plan);
}

void queue_halves(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream) {
  if (takes_halves(shape, places, work))
    TANDEM_LAUNCH("dqn halves", keep, dim3(cuts(DqnHalves(shape).all, kApplyThreads), shape.jobs), dim3(kApplyThreads),
                  stream, shape, places, work);
}

}  // namespace tandem::cuda
