// rl/ppo/ppo_settings.h -- settings of a PPO learner. A recipe derives from it, names its environment, and needs no
// libtorch.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "config/run_settings.h"

namespace tandem {

// The policy and its value: a plain net of hidden layers, or the recurrent one with attention (rl/ppo/clstm_net.h).
struct PolicyNetSettings {
  std::string kind = "mlp";             // mlp, clstm
  std::vector<int64_t> hidden{64, 64};  // of an mlp: of the policy, and of the value beside it
  std::string activation = "tanh";      // of an mlp: tanh, relu
  int64_t width = 256;                  // of a clstm: of its LSTMs and its attention
  int64_t layers = 3;
  int64_t heads = 8;
  double dropout = 0.1;
  std::vector<int64_t> head_hidden{256, 128};  // of a clstm: of the policy's head, and of the value's
};

struct PpoSettings : RecipeSettings {
  int64_t environments = 8;    // per shard
  int64_t horizon = 128;       // steps of each environment between two phases of learning
  int64_t update_epochs = 10;  // times that each step is learned from
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip_range = 0.2;
  double value_weight = 0.5;
  double entropy_weight = 0.01;
  bool normalize_advantages = true;
  bool scale_rewards = true;
  double initial_deviation = 1;  // of continuous actions
  int64_t window = 1;            // steps that the net sees; above 1: for a clstm
  PolicyNetSettings net;
  int64_t pretrain_iterations =
      0;  // rollouts whose steps first teach a clstm to forecast (Environment::forecast_targets)

  PpoSettings() {
    shards = 8;
    batch_size = 256;
    optimizer.kind = "adam";
    optimizer.learning_rate = 3e-4;
    optimizer.epsilon = 1e-5;
    optimizer.weight_decay = 0;
    clip_norm = 0.5;
  }

  // Steps of all environments between two phases of learning, and updates that they are learned from.
  int64_t rollout_steps() const { return shards * environments * horizon; }
  int64_t updates_per_rollout() const { return update_epochs * (rollout_steps() / batch_size); }
  int64_t pretrain_updates() const { return pretrain_iterations * updates_per_rollout(); }

  std::vector<std::string> units() const override { return {"episodes", "iterations"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    describe_environments(d);
    d.key("ppo.horizon", horizon, Range::between(1, 65536), "steps of each environment in a rollout");
    d.key("ppo.epochs", update_epochs, Range::between(1, 1000), "passes over each rollout");
    d.key("ppo.gamma", gamma, Range::between(0, 1), "discount factor");
    d.key("ppo.gae_lambda", gae_lambda, Range::between(0, 1), "lambda of generalized advantage estimation");
    d.key("ppo.clip_range", clip_range, Range::above(0), "how far the ratio of new to old probability may move");
    d.key("ppo.value_weight", value_weight, Range::at_least(0), "weight of the value loss");
    d.key("ppo.entropy_weight", entropy_weight, Range::at_least(0), "weight of the entropy bonus");
    d.key("ppo.normalize_advantages", normalize_advantages, "advantages of a rollout get mean 0 and deviation 1");
    d.key("ppo.scale_rewards", scale_rewards,
          "rewards are divided by the root mean square of discounted returns so far: values are of order 1");
    d.key("ppo.initial_deviation", initial_deviation, Range::above(0),
          "first standard deviation of continuous actions");
    d.key("net.kind", net.kind, Choices{{"mlp", "clstm"}},
          "mlp: hidden layers; clstm: LSTM and attention over a window");
    d.key("net.window", window, Range::between(1, 1024), "steps that a clstm sees, the present one included");
    d.key("net.hidden", net.hidden, Range::between(1, 65536), "mlp: widths of the hidden layers");
    d.key("net.activation", net.activation, Choices{{"tanh", "relu"}}, "mlp: activation of the hidden layers");
    d.key("net.width", net.width, Range::between(1, 8192), "clstm: width of LSTM and attention");
    d.key("net.layers", net.layers, Range::between(1, 64), "clstm: LSTM and attention layers");
    d.key("net.heads", net.heads, Range::between(1, 256), "clstm: attention heads");
    d.key("net.dropout", net.dropout, Range::from_up_to_below(0, 1), "clstm: dropout probability behind each layer");
    d.key("pretrain.iterations", pretrain_iterations, Range::between(0, 1'000'000),
          "clstm: rollouts whose steps first teach it to forecast what comes next; 0: none");
    d.key("net.head_hidden", net.head_hidden, Range::between(1, 65536),
          "clstm: hidden widths of policy and value head");
  }

  virtual void describe_environments(Describer& d) {
    d.key("environments", environments, Range::between(1, 65536), "parallel environments per shard");
  }

  void check() const override {
    RecipeSettings::check();
    if (rollout_steps() % batch_size != 0 || rollout_steps() < batch_size)
      throw ConfigError(fmt::format("a rollout of {} shards x {} environments x {} steps = {} does not divide into "
                                    "batches of {}",
                                    shards, environments, horizon, rollout_steps(), batch_size),
                        "each epoch goes through every step of the rollout once",
                        fmt::format("set batch_size to a divisor of {}, or change ppo.horizon", rollout_steps()));
    if (net.kind == "clstm" && net.width % net.heads != 0)
      throw ConfigError(fmt::format("a width of {} does not divide by {} heads", net.width, net.heads),
                        "attention cuts it into equal heads", "change net.width or net.heads");
    if (net.kind == "mlp" && pretrain_iterations > 0)
      throw ConfigError("pretrain.iterations with net.kind = mlp", "it has no recurrent layers to pre-train",
                        "set net.kind to clstm, or pretrain.iterations to 0");
    if (net.kind == "mlp" && window > 1)
      throw ConfigError(fmt::format("net.window = {} with net.kind = mlp", window),
                        "an mlp sees the present step alone", "set net.kind to clstm, or net.window to 1");
  }
};

}  // namespace tandem
