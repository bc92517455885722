// rl/ppo/ppo_kernels.cu -- CUDA twins of rl/ppo/ppo_kernels.cc. Numbers of a window are copied by one thread each, all
// else is one thread per row.
#include <algorithm>

#include "kernels/gpu/intrinsics.h"
#include "rl/ppo/cuda_ppo_kernels.h"

struct CUstream_st;

namespace tandem::cuda {
namespace {

__global__ void copy_windows(Rollout r, RolloutShape s, WindowSource source, int64_t t, RolloutClock clock,
                             RandomSource key, float* seen, int64_t* row) {
  const int64_t slot = s.window - 1 + t, width = s.width(), number = clock.rollout(key.present());
  for (int64_t i = first_item(); i < s.environments * s.window * width; i += item_stride()) {
    const int64_t e = i / (s.window * width);
    seen[i] = window_element(r, s, source, e, slot, i / width % s.window, i % width);
    if (i % (s.window * width) == 0) row[e] = window_number(s, number, e, t);
  }
}

__global__ void act_all(Rollout r, RolloutShape s, int64_t t, const float* policy, const float* log_deviation,
                        const float* value, RandomSource key, float* actions) {
  const RandomKey present = key.present();
  for (int64_t e = first_item(); e < s.environments; e += item_stride())
    act_one(r, s, t, e, policy, log_deviation, value, present, actions);
}

// A thread for each number of an observation; the first of an environment notes the rest.
__global__ void note_all(Rollout r, RolloutShape s, int64_t t, RolloutStep step, RolloutTally tally, float gamma) {
  for (int64_t i = first_item(); i < s.environments * s.own; i += item_stride()) {
    const int64_t e = i / s.own, column = i % s.own;
    r.own[(e * s.slots() + s.window + t) * s.own + column] = step.own[i];
    if (column == 0) note_one(r, s, t, e, step, tally, gamma);
  }
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
                            RandomSource key, MiniBatch out) {
  __shared__ int64_t row, rollout;
  const int64_t each = s.window * s.width();
  for (int64_t i = blockIdx.x; i < plan.rows; i += gridDim.x) {
    __syncthreads();
    if (threadIdx.x == 0) {
      const MiniBatchOrder order(s, plan, key.present());
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

CUstream_st* of(void* stream) { return static_cast<CUstream_st*>(stream); }

void queue_windows(const Rollout& r, const RolloutShape& s, const WindowSource& source, int64_t t,
                   const RolloutClock& clock, const RandomSource& key, float* seen, int64_t* row, void* stream) {
  TANDEM_LAUNCH("ppo windows", copy_windows, dim3(grid_for(s.environments * s.window * s.width())), dim3(kThreads),
                of(stream), r, s, source, t, clock, key, seen, row);
}

void queue_act(const Rollout& r, const RolloutShape& s, int64_t t, const float* policy, const float* log_deviation,
               const float* value, const RandomSource& key, float* actions, void* stream) {
  TANDEM_LAUNCH("ppo act", act_all, dim3(grid_for(s.environments)), dim3(kThreads), of(stream), r, s, t, policy,
                log_deviation, value, key, actions);
}

void queue_note(const Rollout& r, const RolloutShape& s, int64_t t, const RolloutStep& step, const RolloutTally& tally,
                float gamma, void* stream) {
  TANDEM_LAUNCH("ppo note", note_all, dim3(grid_for(s.environments * s.own)), dim3(kThreads), of(stream), r, s, t, step,
                tally, gamma);
}

void queue_advantages(const Rollout& r, const RolloutShape& s, const float* scale, float gamma, float lambda,
                      void* stream) {
  TANDEM_LAUNCH("ppo advantages", rollout_advantages, dim3(grid_for(s.environments)), dim3(kThreads), of(stream), r, s,
                scale, gamma, lambda);
}

void queue_gather(const Rollout& r, const RolloutShape& s, const WindowSource& source, const MiniBatchPlan& plan,
                  const float* scale, const RandomSource& key, const MiniBatch& out, void* stream) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(plan.rows, 4096));
  TANDEM_LAUNCH("ppo gather", gather_rows, dim3(blocks), dim3(kThreads), of(stream), r, s, source, plan, scale, key,
                out);
}

void queue_loss(const float* policy, const float* log_deviation, const float* value, const MiniBatch& batch,
                const RolloutShape& s, int64_t rows, const PpoWeights& weights, float* loss, float* terms,
                float* d_policy, float* d_log_deviation, float* d_value, void* stream) {
  TANDEM_LAUNCH("ppo loss", row_losses, dim3(grid_for(rows)), dim3(kThreads), of(stream), policy, log_deviation, value,
                batch, s, rows, weights, loss, terms, d_policy, d_log_deviation, d_value);
}

}  // namespace

const PpoKernels& ppo_kernels() {
  static const PpoKernels kernels{queue_windows, queue_act, queue_note, queue_advantages, queue_gather, queue_loss};
  return kernels;
}

}  // namespace tandem::cuda
