// recipes/gym_environment_settings.h -- the keys env.* of recipes that learn in a Gymnasium environment, the same for
// every learner.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/errors.h"
#include "config/settings.h"
#include "rl/gym/gym_process.h"

namespace tandem {

struct GymEnvironmentSettings {
  std::string id = "gym:CartPole-v1";
  std::string arguments = "{}";
  std::string python;
  int64_t count = 8;
  int64_t longest = 0;
  double timeout = 10;
  int64_t restarts = 3;

  // `live`: environments that one process steps at once.
  GymOptions gym_options(int64_t live) const {
    return {.environment = id,
            .arguments = arguments,
            .python = python,
            .timeout_seconds = timeout,
            .restarts = restarts,
            .live = live};
  }
  int64_t environments_per_shard(int64_t shards) const {
    return std::max<int64_t>(1, count / std::max<int64_t>(1, shards));
  }

  void describe_gym(Describer& d) {
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
  }

  void check_count(int64_t shards) const {
    if (count % shards == 0) return;
    const int64_t below = count / shards * shards, first = below > 0 ? below : shards;
    throw ConfigError(
        fmt::format("{} environments do not divide by {} shards", count, shards),
        "every shard has the same number of environments, so that the result never depends on the machines",
        fmt::format("set --num-envs to {} or {}, or shards to a divisor of {}", first, first + shards, count));
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
