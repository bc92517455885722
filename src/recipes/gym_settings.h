// recipes/gym_settings.h -- settings of `dqn`: any Gymnasium environment with discrete actions. The defaults are for
// small problems (a few numbers of state, episodes of some hundred decisions) on a CPU.
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
  DqnSettings learner() const {
    DqnSettings s(*this);
    s.environments = std::max<int64_t>(1, count / std::max<int64_t>(1, shards));
    return s;
  }

  void describe_environments(Describer& d) override {
    d.key("env.id", id, Grammar{"gym:<name of a Gymnasium environment> or <module>:<class or function>", wrong_id},
          "the environment: gym:CartPole-v1, gym:my_package/My-v0, my_module:MyEnv");
    d.key("env.arguments", arguments, Grammar{"a JSON object such as {\"map_name\": \"8x8\"}", wrong_arguments},
          "what it is made with, as JSON");
    d.key("env.count", count, Range::between(1, 65536), "environments at once, over all shards");
    d.key("env.max_steps", longest, Range::between(0, 1e7),
          "cut an episode after so many decisions; 0: the environment's own limit");
    d.key("env.python", python,
          "Python to run it with; empty: the active virtual environment's, the project's, python3", Role::kRunning);
    d.key("env.timeout", timeout, Range::above(0), "seconds one decision may take before it counts as hung",
          Role::kRunning);
    d.key("env.restarts", restarts, Range::at_least(0), "restarts of a failing environment before the run stops",
          Role::kRunning);
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
