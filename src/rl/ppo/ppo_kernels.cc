// rl/ppo/ppo_kernels.cc -- PPO's kernels on a CPU.
#include "rl/ppo/ppo_kernels.h"

#include <algorithm>

namespace tandem {
namespace {

void copy_window(const Rollout& r, const RolloutShape& s, const WindowSource& source, int64_t environment, int64_t slot,
                 float* out) {
  for (int64_t k = 0; k < s.window; ++k)
    for (int64_t column = 0; column < s.width(); ++column)
      *out++ = window_element(r, s, source, environment, slot, k, column);
}

void copy_windows(const Rollout& r, const RolloutShape& s, const WindowSource& source, int64_t t,
                  const RolloutClock& clock, const RandomSource& key, float* seen, int64_t* row, void*) {
  const int64_t slot = s.window - 1 + t, each = s.window * s.width(), number = clock.rollout(key.present());
  for (int64_t e = 0; e < s.environments; ++e) {
    copy_window(r, s, source, e, slot, seen + e * each);
    row[e] = window_number(s, number, e, t);
  }
}

void act_all(const Rollout& r, const RolloutShape& s, int64_t t, const float* policy, const float* log_deviation,
             const float* value, const RandomSource& key, float* actions, void*) {
  for (int64_t e = 0; e < s.environments; ++e)
    act_one(r, s, t, e, policy, log_deviation, value, key.present(), actions);
}

void note_all(const Rollout& r, const RolloutShape& s, int64_t t, const RolloutStep& step, const RolloutTally& tally,
              float gamma, void*) {
  for (int64_t e = 0; e < s.environments; ++e) {
    note_one(r, s, t, e, step, tally, gamma);
    std::copy_n(step.own + e * s.own, s.own, r.own + (e * s.slots() + s.window + t) * s.own);
  }
}

void rollout_advantages(const Rollout& r, const RolloutShape& s, const float* scale, float gamma, float lambda, void*) {
  for (int64_t e = 0; e < s.environments; ++e) {
    const int64_t at = e * s.horizon;
    advantages(r.reward + at, *scale, r.value + e * (s.horizon + 1), r.end + at, r.weight + at, s.horizon, gamma,
               lambda, r.advantage + at, r.target + at);
  }
}

void gather_rows(const Rollout& r, const RolloutShape& s, const WindowSource& source, const MiniBatchPlan& plan,
                 const float* scale, const RandomSource& key, const MiniBatch& out, void*) {
  const MiniBatchOrder order(s, plan, key.present());
  for (int64_t i = 0; i < plan.rows; ++i) {
    const int64_t row = order.at(i), slot = s.window - 1 + row % s.horizon;
    copy_window(r, s, source, row / s.horizon, slot, out.seen + i * s.window * s.width());
    take_row(r, s, row, scale, order.rollout, i, out);
  }
}

void row_losses(const float* policy, const float* log_deviation, const float* value, const MiniBatch& batch,
                const RolloutShape& s, int64_t rows, const PpoWeights& weights, float* loss, float* terms,
                float* d_policy, float* d_log_deviation, float* d_value, void*) {
  for (int64_t i = 0; i < rows; ++i)
    loss[i] =
        ppo_row_loss(policy, log_deviation, value, batch, s, i, weights, terms, d_policy, d_log_deviation, d_value);
}

}  // namespace

const PpoKernels& PpoKernels::cpu() {
  static const PpoKernels kernels{copy_windows, act_all, note_all, rollout_advantages, gather_rows, row_losses};
  return kernels;
}

}  // namespace tandem
