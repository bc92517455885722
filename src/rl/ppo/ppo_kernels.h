// rl/ppo/ppo_kernels.h -- PPO's kernels: a rollout in memory, acting, advantages, mini-batches, the loss.
//
// CPU and CUDA give equal bits. On a GPU, `stream` is a cudaStream_t and every call only queues work. A RandomSource
// that was captured reads seed, step and shard on the device.
//
// A rollout is the steps of a shard's environments since it last learned, with those before that a window still sees:
//   slot       0 ... window - 2 | window - 1 ... window + horizon - 2 | window + horizon - 1
//   step       those before     | 0 ... horizon - 1                   | horizon: what comes next
// The row of step t of environment e is e * horizon + t.
#pragma once

#include <cstdint>

#include "kernels/gpu/kernel_tables.h"
#include "kernels/permutation.h"
#include "kernels/random_source.h"
#include "rl/ppo/ppo_math.h"
#include "rl/rollout_clock.h"

namespace tandem {

struct RolloutShape {
  int64_t environments = 1, horizon = 1, window = 1;
  int64_t own = 0, table = 0;            // numbers of a step: the environment's own, and of the shared table
  int64_t actions = 0, action_size = 0;  // discrete: how many; continuous: numbers of one
  TANDEM_HD int64_t slots() const { return window + horizon; }
  TANDEM_HD int64_t rows() const { return environments * horizon; }
  TANDEM_HD int64_t width() const { return own + table; }
  TANDEM_HD int64_t action_floats() const { return action_size > 0 ? action_size : 1; }
  TANDEM_HD int64_t outputs() const { return action_size > 0 ? action_size : actions; }
};

// Of one shard, where the numbers live.
struct Rollout {
  float* own;        // [environments, slots, own]
  int32_t* row;      // [environments, slots]: of the table
  int32_t* age;      // [environments, slots]: steps since the episode began
  float* action;     // [environments, horizon, action_floats]
  float* log_prob;   // [environments, horizon]
  float* value;      // [environments, horizon + 1]
  float* reward;     // [environments, horizon]
  int32_t* end;      // [environments, horizon]: an End
  float* weight;     // [environments, horizon]: 0 for an idle step
  float* advantage;  // [environments, horizon]
  float* target;     // [environments, horizon]: of the value
};

// What is the same for all shards: rows of the table, and what stands for steps before an episode began.
struct WindowSource {
  const float* table = nullptr;   // [count, table]
  const float* before = nullptr;  // [own]
};

// What a time step of the environments gave, [environments] each; of an idle one reward 0 and no end.
struct RolloutStep {
  const float* reward;
  const int32_t* end;  // an End
  const float* own;    // [environments, own]: the observation after it
  const int32_t* row;  // of the table
};

// Of one shard, [environments] each.
struct RolloutTally {
  // From step to step: the return of the episode so far, plain and discounted, its steps, and the End of the last one:
  // an environment whose episode has ended is idle at the next step.
  float *returned, *discounted;
  int32_t *length, *ended;
  // Added up over a rollout: squares of discounted returns, returns of episodes that ended; counts, which are
  // [environments, kTallyCounts].
  float *squares, *finished;
  int64_t* counts;
};
enum TallyCount { kTalliedSteps, kTalliedEpisodes, kTalliedLength, kTallyCounts };  // the last: of episodes that ended

// Where the rows of a mini-batch go.
struct MiniBatch {
  float* seen;      // [rows, window, width]: the table's numbers, then the environment's own
  float* action;    // [rows, action_floats]
  float* log_prob;  // [rows] and so on
  float* advantage;
  float* target;
  float* weight;
  int64_t* row;        // a number that no other step of the whole run has: rollout * rows + row
  int64_t* table_row;  // of the step
};

// Which rows: an epoch goes through all of them in an order of its own.
struct MiniBatchPlan {
  int64_t rows = 1;     // of this shard, in one micro-batch
  int64_t batches = 1;  // micro-batches of an epoch
  int64_t epochs = 1;   // of a rollout
};

struct PpoKernels {
  static constexpr KernelTableId kId{"ppo", 2};
  static const PpoKernels& cpu();

  // The windows that end at step t of each environment, and the numbers of these rows. The key tells which rollout of
  // the run it is; nothing is drawn.
  void (*windows)(const Rollout& rollout, const RolloutShape& shape, const WindowSource& source, int64_t t,
                  const RolloutClock& clock, const RandomSource& key, float* seen, int64_t* row, void* stream);
  // Draws an action for each environment and notes it with its log-probability and the value, as step t; with t equal
  // to the horizon only the value. policy [environments, outputs]; log_deviation [action_size], or null. `actions`
  // [environments, action_floats] gets the same for the environment.
  void (*act)(const Rollout& rollout, const RolloutShape& shape, int64_t t, const float* policy,
              const float* log_deviation, const float* value, const RandomSource& key, float* actions, void* stream);
  // Notes what step t gave: in the rollout, with the observation that comes next, and in the tally.
  void (*note)(const Rollout& rollout, const RolloutShape& shape, int64_t t, const RolloutStep& step,
               const RolloutTally& tally, float gamma, void* stream);
  // reward_scale: one number, where the rollout lives.
  void (*advantages)(const Rollout& rollout, const RolloutShape& shape, const float* reward_scale, float gamma,
                     float lambda, void* stream);
  // The rows of micro-batch key.step of the run. Advantages are shifted by scale[0] and multiplied by scale[1].
  void (*gather)(const Rollout& rollout, const RolloutShape& shape, const WindowSource& source,
                 const MiniBatchPlan& plan, const float* scale, const RandomSource& key, const MiniBatch& out,
                 void* stream);
  // loss [rows], terms [rows, kPpoTerms], and the gradients of the sum of losses. log_deviation [rows, action_size] and
  // its gradient: null for discrete actions.
  void (*loss)(const float* policy, const float* log_deviation, const float* value, const MiniBatch& batch,
               const RolloutShape& shape, int64_t rows, const PpoWeights& weights, float* loss, float* terms,
               float* d_policy, float* d_log_deviation, float* d_value, void* stream);
};

// ---- what both sides compute, one row each ----

// Number `column` of step k of the window that ends at a slot.
TANDEM_HD float window_element(const Rollout& r, const RolloutShape& s, const WindowSource& source, int64_t environment,
                               int64_t slot, int64_t k, int64_t column) {
  const int64_t back = s.window - 1 - k, at = environment * s.slots() + slot;
  if (column < s.table) {
    const int64_t table_row = static_cast<int64_t>(r.row[at]) - back;
    return table_row >= 0 ? source.table[table_row * s.table + column] : 0.0f;
  }
  return back <= r.age[at] ? r.own[(at - back) * s.own + (column - s.table)] : source.before[column - s.table];
}

// The order in which micro-batch key.step of the run goes through the rollout.
struct MiniBatchOrder {
  Permutation order;
  int64_t rollout, first;  // which one of the run; place of the micro-batch's first row in the epoch
  TANDEM_HD MiniBatchOrder(const RolloutShape& s, const MiniBatchPlan& plan, const RandomKey& key)
      : order(static_cast<uint64_t>(s.rows()), key.seed + (key.shard + uint64_t{1}) * 0x9E3779B97F4A7C15u,
              key.step / static_cast<uint64_t>(plan.batches)),
        rollout(static_cast<int64_t>(key.step) / (plan.batches * plan.epochs)),
        first(static_cast<int64_t>(key.step) % plan.batches * plan.rows) {}
  TANDEM_HD int64_t at(int64_t i) const { return static_cast<int64_t>(order.at(static_cast<uint64_t>(first + i))); }
};

// Numbers of windows: of a step of the rollout, and of what comes after the last one.
TANDEM_HD int64_t window_number(const RolloutShape& s, int64_t rollout, int64_t environment, int64_t t) {
  const bool next = t == s.horizon;
  return next ? (rollout + 1) * s.rows() + environment * s.horizon : rollout * s.rows() + environment * s.horizon + t;
}

TANDEM_HD void act_one(const Rollout& r, const RolloutShape& s, int64_t t, int64_t e, const float* policy,
                       const float* log_deviation, const float* value, const RandomKey& key, float* actions) {
  r.value[e * (s.horizon + 1) + t] = value[e];
  if (t == s.horizon) return;
  const int64_t at = e * s.horizon + t, outputs = s.outputs();
  const float* const out = policy + e * outputs;
  float log_prob = 0;
  if (s.action_size == 0) {
    const RowLogSum row = policy_log_sum(out, outputs);
    const int32_t chosen = sampled_action(out, outputs, row, random_uniform(key, static_cast<uint64_t>(at)));
    log_prob = log_probability(row, out[chosen]);
    actions[e] = static_cast<float>(chosen);
  } else {
    for (int64_t i = 0; i < outputs; ++i) {
      const float normal = random_normal(key, static_cast<uint64_t>(at * outputs + i));
      const float action = out[i] + softmax_exp(log_deviation[i]) * normal;
      log_prob = log_prob + normal_log_probability(action, out[i], log_deviation[i]);
      actions[e * outputs + i] = action;
    }
  }
  for (int64_t i = 0; i < s.action_floats(); ++i)
    r.action[at * s.action_floats() + i] = actions[e * s.action_floats() + i];
  r.log_prob[at] = log_prob;
}

// All of note() for environment e but the observation.
TANDEM_HD void note_one(const Rollout& r, const RolloutShape& s, int64_t t, int64_t e, const RolloutStep& step,
                        const RolloutTally& tally, float gamma) {
  const bool idle = tally.ended[e] != 0;
  const int64_t at = e * s.horizon + t, next = e * s.slots() + s.window + t;
  r.reward[at] = step.reward[e];
  r.weight[at] = idle ? 0.0f : 1.0f;
  r.end[at] = step.end[e];
  float returned = tally.returned[e] + step.reward[e];
  float discounted = idle ? 0.0f : gamma * tally.discounted[e] + step.reward[e];
  const int32_t length = idle ? 0 : tally.length[e] + 1;
  r.row[next] = step.row[e];
  r.age[next] = length;
  int64_t* const counts = tally.counts + e * kTallyCounts;
  tally.squares[e] = tally.squares[e] + discounted * discounted;
  counts[kTalliedSteps] += idle ? 0 : 1;
  if (step.end[e] != 0) {
    tally.finished[e] = tally.finished[e] + returned;
    counts[kTalliedEpisodes] += 1;
    counts[kTalliedLength] += length;
    returned = discounted = 0;
  }
  tally.returned[e] = returned;
  tally.discounted[e] = discounted;
  tally.length[e] = length;
  tally.ended[e] = step.end[e];
}

// All of a row but its window.
TANDEM_HD void take_row(const Rollout& r, const RolloutShape& s, int64_t row, const float* scale, int64_t rollout,
                        int64_t i, const MiniBatch& out) {
  const int64_t floats = s.action_floats();
  for (int64_t k = 0; k < floats; ++k) out.action[i * floats + k] = r.action[row * floats + k];
  out.log_prob[i] = r.log_prob[row];
  out.advantage[i] = (r.advantage[row] - scale[0]) * scale[1];
  out.target[i] = r.target[row];
  out.weight[i] = r.weight[row];
  out.row[i] = rollout * s.rows() + row;
  out.table_row[i] = r.row[row / s.horizon * s.slots() + s.window - 1 + row % s.horizon];
}

TANDEM_HD float ppo_row_loss(const float* policy, const float* log_deviation, const float* value,
                             const MiniBatch& batch, const RolloutShape& s, int64_t i, const PpoWeights& weights,
                             float* terms, float* d_policy, float* d_log_deviation, float* d_value) {
  const int64_t outputs = s.outputs(), at = i * outputs;
  if (s.action_size == 0)
    return discrete_loss(policy + at, outputs, value[i], batch.action[i], batch.log_prob[i], batch.advantage[i],
                         batch.target[i], batch.weight[i], weights, terms + i * kPpoTerms, d_policy + at, d_value + i);
  return continuous_loss(policy + at, log_deviation + at, outputs, value[i], batch.action + at, batch.log_prob[i],
                         batch.advantage[i], batch.target[i], batch.weight[i], weights, terms + i * kPpoTerms,
                         d_policy + at, d_log_deviation + at, d_value + i);
}

}  // namespace tandem
