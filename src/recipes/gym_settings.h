// recipes/gym_settings.h -- settings of `dqn`: any Gymnasium environment with discrete actions. The defaults are for
// small problems (observations of a few numbers, episodes of some hundred steps) on a CPU.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rl/dqn/dqn_settings.h"

namespace tandem {

struct GymSettings : DqnSettings {
  std::string id = "gym:CartPole-v1";
  std::string arguments = "{}";
  std::string python;
  int64_t count = 8;
  int64_t longest = 0;
  double timeout = 10;
  int64_t restarts = 3;
  int64_t history_state_size = 0, history_actions = 0;  // of experience; 0: what its files have

  GymSettings() {
    shards = 4;
    batch_size = 128;
    steps = 10'000;
    capacity = 100'000;
    learning_starts = 1000;
    n_step = 5;
    alpha = 0.3;
    target_rate = 0.01;
    epsilon_end = 0.02;
    epsilon_steps = 2000;
    beta_steps = 10'000;
    net = {.hidden = {128, 128}, .head = 64, .dropout = 0};
    optimizer.learning_rate = 1e-3;
    optimizer.weight_decay = 0;
    schedule.kind = "cosine";
  }

  // As the learner counts them.
  GymSettings learner() const {
    GymSettings s(*this);
    s.environments = std::max<int64_t>(1, count / std::max<int64_t>(1, shards));
    return s;
  }
  bool offline() const { return learner().playing() == 0; }  // no environment is made

  std::optional<HistoryShape> history_shape() const override {
    return HistoryShape{static_cast<int32_t>(history_state_size), static_cast<int32_t>(history_actions), {}};
  }
  void take_history_sizes(int64_t state_size, int64_t actions) override {
    history_state_size = state_size;
    history_actions = actions;
  }

  void describe_environments(Describer& d) override {
    d.key("env.id", id, Grammar{"gym:<name of a Gymnasium environment> or <module>:<class or function>", wrong_id},
          "the environment: gym:CartPole-v1, gym:my_package/My-v0, my_module:MyEnv");
    d.key("env.arguments", arguments, Grammar{"a JSON object such as {\"map_name\": \"8x8\"}", wrong_arguments},
          "keyword arguments of the environment, as JSON");
    d.key("env.count", count, Range::between(1, 65536), "parallel environments, over all shards");
    d.key("env.max_steps", longest, Range::between(0, 1e7),
          "truncate episodes after this many steps; 0: the environment's own limit");
    d.key("env.python", python, "Python to run it with; empty: that of VIRTUAL_ENV, else of .venv, else python3",
          Role::kRunning);
    d.key("env.timeout", timeout, Range::above(0), "seconds one environment step may take before it counts as hung",
          Role::kRunning);
    d.key("env.restarts", restarts, Range::at_least(0), "restarts of a failing environment before the run stops",
          Role::kRunning);
    d.key("experience.state_size", history_state_size, Range::between(0, kMostHistoryStates),
          "numbers of a state in the experience; 0: as its first line has");
    d.key("experience.actions", history_actions, Range::between(0, kMostHistoryActions),
          "actions that the experience may have; 0: its largest and one");
  }

  void check() const override {
    learner().DqnSettings::check();
    if (count % shards != 0) {
      const int64_t below = count / shards * shards, first = below > 0 ? below : shards;
      throw ConfigError(
          fmt::format("{} environments do not divide by {} shards", count, shards),
          "every shard has the same number of environments, so that the result never depends on the "
          "machines",
          fmt::format("set --num-envs to {} or {}, or shards to a divisor of {}", first, first + shards, count));
    }
  }

 private:
  static std::optional<std::string> wrong_id(const std::string& text) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return fmt::format("it does not say what it is; gym:{} is Gymnasium's", text);
    if (colon == 0 || colon + 1 == text.size()) return "a part of it is empty";
    return std::nullopt;
  }
  static std::optional<std::string> wrong_arguments(const std::string& text) {
    const auto parsed = nlohmann::json::parse(text, nullptr, false);
    if (parsed.is_discarded()) return "it is no JSON";
    if (!parsed.is_object()) return "it is JSON, but no object";
    return std::nullopt;
  }
};

}  // namespace tandem
