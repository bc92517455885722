// rl/ppo/ppo_math.h -- the arithmetic of PPO for one row: log-probabilities, the clipped loss and its gradient,
// advantages. CPU and GPU give equal bits (portable.h).
#pragma once

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/softmax_math.h"

namespace tandem {

inline constexpr float kHalfLogTwoPi = 0.918938533f;

struct PpoWeights {
  float clip_range = 0.2f, value = 0.5f, entropy = 0.01f;
};

// What one row's loss consists of; summed over rows for the record.
enum PpoTerm : int { kPolicyTerm, kValueTerm, kEntropyTerm, kKlTerm, kClippedTerm, kPpoTerms };

// ---- discrete actions: a softmax over logits ----

TANDEM_HD RowLogSum policy_log_sum(const float* logits, int64_t actions) {
  float maximum = logits[0], sum = 0;
  for (int64_t i = 1; i < actions; ++i) maximum = logits[i] > maximum ? logits[i] : maximum;
  for (int64_t i = 0; i < actions; ++i) sum = sum + softmax_exp(logits[i] - maximum);
  return {maximum, softmax_log(sum)};
}
TANDEM_HD float log_probability(const RowLogSum& row, float logit) { return (logit - row.maximum) - row.log_sum; }

// What an impossible action gets (rl/environment.h, ActionRule): a probability of 0, and no gradient.
inline constexpr float kImpossibleLogit = -1e9f;

// The first action at which the running sum of probabilities exceeds `uniform`; rounding may leave a rest for the last
// one that is possible.
TANDEM_HD int32_t sampled_action(const float* logits, int64_t actions, const RowLogSum& row, float uniform) {
  float sum = 0;
  int32_t last = 0;
  for (int64_t i = 0; i < actions; ++i) {
    const float p = softmax_exp(log_probability(row, logits[i]));
    sum = sum + p;
    last = p > 0.0f ? static_cast<int32_t>(i) : last;
    if (uniform < sum) return static_cast<int32_t>(i);
  }
  return last;
}
TANDEM_HD int32_t likeliest_action(const float* logits, int64_t actions) {
  int64_t best = 0;
  for (int64_t i = 1; i < actions; ++i) best = logits[i] > logits[best] ? i : best;
  return static_cast<int32_t>(best);
}

// ---- continuous actions: independent normals ----

TANDEM_HD float normal_log_probability(float action, float mean, float log_deviation) {
  const float z = (action - mean) * softmax_exp(-log_deviation);
  return -0.5f * (z * z) - log_deviation - kHalfLogTwoPi;
}

// ---- the loss ----

struct RatioLoss {
  float loss, slope;  // slope: d loss / d log-probability
  float kl;           // an estimate that is never below 0: (ratio - 1) - log ratio
  bool clipped;
};
TANDEM_HD RatioLoss ratio_loss(float log_prob, float old_log_prob, float advantage, float clip_range) {
  float log_ratio = log_prob - old_log_prob;
  log_ratio = log_ratio > 20.0f ? 20.0f : log_ratio < -20.0f ? -20.0f : log_ratio;
  const float ratio = softmax_exp(log_ratio);
  const float low = 1.0f - clip_range, high = 1.0f + clip_range;
  const float kept = ratio < low ? low : ratio > high ? high : ratio;
  const float plain = ratio * advantage, clipped = kept * advantage;
  RatioLoss out;
  out.loss = plain <= clipped ? -plain : -clipped;
  out.slope = plain <= clipped ? -plain : 0.0f;  // the clipped form is constant there
  out.kl = (ratio - 1.0f) - log_ratio;
  out.clipped = kept != ratio;
  return out;
}

// The value's part, alike for both kinds of actions. Writes the term and the gradient of the value.
TANDEM_HD float value_loss(float value, float target, float weight, float* gradient) {
  const float error = value - target;
  *gradient = 2.0f * weight * error;
  return error * error;
}

// One row; `weight` 0: an idle step, which teaches nothing. Returns the row's loss; writes its terms and gradients.
TANDEM_HD float discrete_loss(const float* logits, int64_t actions, float value, float action, float old_log_prob,
                              float advantage, float target, float weight, const PpoWeights& w, float* terms,
                              float* d_logits, float* d_value) {
  const RowLogSum row = policy_log_sum(logits, actions);
  const auto chosen = static_cast<int64_t>(action);
  const RatioLoss policy = ratio_loss(log_probability(row, logits[chosen]), old_log_prob, advantage, w.clip_range);
  float entropy = 0;
  for (int64_t i = 0; i < actions; ++i) {
    const float log_p = log_probability(row, logits[i]);
    entropy = entropy - softmax_exp(log_p) * log_p;
  }
  for (int64_t i = 0; i < actions; ++i) {
    const float log_p = log_probability(row, logits[i]), p = softmax_exp(log_p);
    const float of_policy = policy.slope * ((i == chosen ? 1.0f : 0.0f) - p);
    const float of_entropy = w.entropy * (p * (log_p + entropy));
    d_logits[i] = weight * (of_policy + of_entropy);
  }
  terms[kValueTerm] = weight * value_loss(value, target, w.value, d_value);
  *d_value = weight * *d_value;
  terms[kPolicyTerm] = weight * policy.loss;
  terms[kEntropyTerm] = weight * entropy;
  terms[kKlTerm] = weight * policy.kl;
  terms[kClippedTerm] = policy.clipped ? weight : 0.0f;
  return terms[kPolicyTerm] + w.value * terms[kValueTerm] - w.entropy * terms[kEntropyTerm];
}

TANDEM_HD float continuous_loss(const float* mean, const float* log_deviation, int64_t size, float value,
                                const float* action, float old_log_prob, float advantage, float target, float weight,
                                const PpoWeights& w, float* terms, float* d_mean, float* d_log_deviation,
                                float* d_value) {
  float log_prob = 0, entropy = 0;
  for (int64_t i = 0; i < size; ++i) {
    log_prob = log_prob + normal_log_probability(action[i], mean[i], log_deviation[i]);
    entropy = entropy + (log_deviation[i] + (0.5f + kHalfLogTwoPi));
  }
  const RatioLoss policy = ratio_loss(log_prob, old_log_prob, advantage, w.clip_range);
  for (int64_t i = 0; i < size; ++i) {
    const float inverse = softmax_exp(-log_deviation[i]), z = (action[i] - mean[i]) * inverse;
    d_mean[i] = weight * (policy.slope * (z * inverse));
    d_log_deviation[i] = weight * (policy.slope * (z * z - 1.0f) - w.entropy);
  }
  terms[kValueTerm] = weight * value_loss(value, target, w.value, d_value);
  *d_value = weight * *d_value;
  terms[kPolicyTerm] = weight * policy.loss;
  terms[kEntropyTerm] = weight * entropy;
  terms[kKlTerm] = weight * policy.kl;
  terms[kClippedTerm] = policy.clipped ? weight : 0.0f;
  return terms[kPolicyTerm] + w.value * terms[kValueTerm] - w.entropy * terms[kEntropyTerm];
}

// ---- generalized advantage estimation, one environment's rollout ----
//
// end[t]: how step t ended: 0 it goes on, 1 terminated, 2 truncated. Where it ended, step t + 1 is idle: its value is
// that of the episode's last observation, its weight 0. value has one more than there are steps. Rewards are multiplied
// by `scale` first: values are in these units.
TANDEM_HD void advantages(const float* reward, float scale, const float* value, const int32_t* end, const float* weight,
                          int64_t steps, float gamma, float lambda, float* advantage, float* target) {
  float next = 0;
  for (int64_t t = steps; t-- > 0;) {
    const float worth = end[t] == 1 ? 0.0f : value[t + 1];
    const float delta = (reward[t] * scale + gamma * worth) - value[t];
    next = end[t] == 0 ? delta + (gamma * lambda) * next : delta;
    if (weight[t] == 0.0f) next = 0;  // nothing flows from an idle step to the one before it
    advantage[t] = next;
    target[t] = next + value[t];
  }
}

}  // namespace tandem
