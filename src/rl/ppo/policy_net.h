// rl/ppo/policy_net.h -- what PPO asks of a net: a policy and a value for each window that it is shown.
//
// Two nets come with it (make_policy_net): `mlp`, a policy and a value side by side, each with hidden layers of its
// own; `clstm`, of LSTMs and attention over the window. Both are made of nn/'s layers, so that several shards share a
// pass.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/random_source.h"
#include "nn/init.h"
#include "nn/layer_context.h"
#include "rl/environment.h"
#include "rl/ppo/ppo_settings.h"

namespace tandem {

struct PolicyOutput {
  // float [rows, outputs]: logits, kImpossibleLogit of impossible actions; or the means of continuous ones
  at::Tensor policy;
  at::Tensor value;          // float [rows]
  at::Tensor log_deviation;  // float [rows, action_size], of continuous actions
  at::Tensor forecast;       // float [rows, forecasts], where the net has heads for it and gradients are on
};

// What comes in and out.
struct PolicyShape {
  int64_t window = 1, width = 0;         // numbers of a step
  int64_t outputs = 0, action_size = 0;  // the latter 0: discrete
  std::vector<ActionRule> rules = {};    // of discrete actions, on the last `own` numbers of a step; empty: none
  int64_t own = 0;
  int64_t forecasts = 0;  // numbers to be forecast in pre-training, by a head each
};

class PolicyNet : public torch::nn::Module, public ShardAware {
 public:
  // seen: float [rows, window, width]; number: int64 [rows], by which dropout knows a step again. Without a key there
  // is no dropout: in evaluation.
  PolicyOutput forward(const at::Tensor& seen, const at::Tensor& number, const std::optional<RandomSource>& key);
  virtual InitRules initial_weights() const = 0;

  at::Tensor log_deviation;  // [action_size] of continuous actions; else undefined

 protected:
  // What forward() adds the deviations to; policy and value in the net's own type.
  virtual PolicyOutput run(const at::Tensor& seen, const at::Tensor& number,
                           const std::optional<RandomSource>& key) = 0;
  void add_deviation(int64_t action_size, double initial);

 private:
  friend std::shared_ptr<PolicyNet> make_policy_net(const PpoSettings& settings, const PolicyShape& shape);
  void obey(const PolicyShape& shape);
  at::Tensor rule_columns_, rule_low_, rule_high_;  // [outputs]: of an observation, and its limits
};

std::shared_ptr<PolicyNet> make_policy_net(const PpoSettings& settings, const PolicyShape& shape);

}  // namespace tandem
