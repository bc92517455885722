// rl/ppo/ppo_kernels.cu -- CUDA twins of rl/ppo/ppo_kernels.cc. Numbers of a window are copied by one thread each, all
// else is one thread per row.
#include "kernels/gpu/launch.h"
#include "rl/ppo/cuda_ppo_kernels.h"

namespace tandem::cuda {
namespace {

// Seed and step of a captured kernel are those of the present step; the shard is the graph's own.
__device__ RandomKey present_key(const RandomKey& key, const RandomKey* on_device) {
  RandomKey now = key;
  if (on_device) {
    now.seed = on_device->seed;
    now.step = on_device->step;
  }
  return now;
}

__global__ void copy_windows(Rollout r, RolloutShape s, WindowSource source, int64_t t, int64_t number, float* seen,
                             int64_t* row) {
  const int64_t slot = s.window - 1 + t, width = s.width();
  for (int64_t i = first_item(); i < s.environments * s.window * width; i += item_stride()) {
    const int64_t e = i / (s.window * width);
    seen[i] = window_element(r, s, source, e, slot, i / width % s.window, i % width);
    if (i % (s.window * width) == 0) row[e] = window_number(s, number, e, t);
  }
}

__global__ void act_all(Rollout r, RolloutShape s, int64_t t, const float* policy, const float* log_deviation,
                        const float* value, RandomKey key, const RandomKey* on_device, float* actions) {
  for (int64_t e = first_item(); e < s.environments; e += item_stride())
    act_one(r, s, t, e, policy, log_deviation, value, present_key(key, on_device), actions);
}

__global__ void rollout_advantages(Rollout r, RolloutShape s, const float* scale, float gamma, float lambda) {
  for (int64_t e = first_item(); e < s.environments; e += item_stride()) {
    const int64_t at = e * s.horizon;
    advantages(r.reward + at, *scale, r.value + e * (s.horizon + 1), r.end + at, r.weight + at, s.horizon, gamma,
               lambda, r.advantage + at, r.target + at);
  }
}

// A block per row: its order is drawn once.
__global__ void gather_rows(Rollout r, RolloutShape s, WindowSource source, MiniBatchPlan plan, const float* scale,
                            RandomKey key, const RandomKey* on_device, MiniBatch out) {
  __shared__ int64_t row, rollout;
  const int64_t each = s.window * s.width();
  for (int64_t i = blockIdx.x; i < plan.rows; i += gridDim.x) {
    __syncthreads();
    if (threadIdx.x == 0) {
      const MiniBatchOrder order(s, plan, present_key(key, on_device));
      row = order.at(i);
      rollout = order.rollout;
      take_row(r, s, row, scale, rollout, i, out);
    }
    __syncthreads();
    for (int64_t k = threadIdx.x; k < each; k += blockDim.x)
      out.seen[i * each + k] =
          window_element(r, s, source, row / s.horizon, s.window - 1 + row % s.horizon, k / s.width(), k % s.width());
  }
}

__global__ void row_losses(const float* policy, const float* log_deviation, const float* value, MiniBatch batch,
                           RolloutShape s, int64_t rows, PpoWeights weights, float* loss, float* terms, float* d_policy,
                           float* d_log_deviation, float* d_value) {
  for (int64_t i = first_item(); i < rows; i += item_stride())
    loss[i] =
        ppo_row_loss(policy, log_deviation, value, batch, s, i, weights, terms, d_policy, d_log_deviation, d_value);
}

cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }

void queue_windows(const Rollout& r, const RolloutShape& s, const WindowSource& source, int64_t t, int64_t number,
                   float* seen, int64_t* row, void* stream) {
  copy_windows<<<grid_for(s.environments * s.window * s.width()), kThreads, 0, of(stream)>>>(r, s, source, t, number,
                                                                                             seen, row);
  check_launch("copy_windows");
}

void queue_act(const Rollout& r, const RolloutShape& s, int64_t t, const float* policy, const float* log_deviation,
               const float* value, const RandomSource& key, float* actions, void* stream) {
  act_all<<<grid_for(s.environments), kThreads, 0, of(stream)>>>(r, s, t, policy, log_deviation, value, key,
                                                                 key.on_device, actions);
  check_launch("act_all");
}

void queue_advantages(const Rollout& r, const RolloutShape& s, const float* scale, float gamma, float lambda,
                      void* stream) {
  rollout_advantages<<<grid_for(s.environments), kThreads, 0, of(stream)>>>(r, s, scale, gamma, lambda);
  check_launch("rollout_advantages");
}

void queue_gather(const Rollout& r, const RolloutShape& s, const WindowSource& source, const MiniBatchPlan& plan,
                  const float* scale, const RandomSource& key, const MiniBatch& out, void* stream) {
  const int blocks = static_cast<int>(std::min<int64_t>(plan.rows, 4096));
  gather_rows<<<blocks, kThreads, 0, of(stream)>>>(r, s, source, plan, scale, key, key.on_device, out);
  check_launch("gather_rows");
}

void queue_loss(const float* policy, const float* log_deviation, const float* value, const MiniBatch& batch,
                const RolloutShape& s, int64_t rows, const PpoWeights& weights, float* loss, float* terms,
                float* d_policy, float* d_log_deviation, float* d_value, void* stream) {
  row_losses<<<grid_for(rows), kThreads, 0, of(stream)>>>(policy, log_deviation, value, batch, s, rows, weights, loss,
                                                          terms, d_policy, d_log_deviation, d_value);
  check_launch("row_losses");
}

}  // namespace

const PpoKernels& ppo_kernels() {
  static const PpoKernels kernels{queue_windows, queue_act, queue_advantages, queue_gather, queue_loss};
  return kernels;
}

}  // namespace tandem::cuda
