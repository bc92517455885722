// rl/dqn/dqn_settings.h -- settings of a DQN learner. A recipe derives from it, names its environment, and needs no
// libtorch.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/errors.h"
#include "config/run_settings.h"
#include "world/product_history.h"

namespace tandem {

struct NetSettings {
  std::vector<int64_t> hidden{512, 256};  // each with layer norm, ReLU and dropout
  int64_t head = 128;                     // hidden width of each of the two dueling heads
  double dropout = 0.1;                   // .2 learned less (docs/web-agent.md)
  bool attention = false;  // among `tokens` groups of the last hidden layer's features, between it and the heads
  int64_t tokens = 8;
  int64_t attention_heads = 8;
};

// Transitions of a real system, to learn from instead of, or beside, the simulator (rl/replay/experience.h).
struct ExperienceSettings {
  std::string files;     // separated by commas; empty: none
  std::string digest;    // of their bytes; set when the run begins
  double share = 1;      // of the replay's rings that hold them; 1: no environment runs
  double holdout = 0.1;  // kept apart to judge by
};

struct DqnSettings : RecipeSettings {
  int64_t environments = 32;     // per shard
  int64_t capacity = 1'000'000;  // decisions kept, over all shards
  int64_t learning_starts = 10'000;
  int64_t n_step = 3;
  double gamma = 0.99;
  double target_rate = 0.001;
  double epsilon_start = 1, epsilon_end = 0.01;
  int64_t epsilon_steps = 4000;
  double alpha = 0.6;
  double beta_start = 0.4, beta_end = 1;
  int64_t beta_steps = 15'000;
  NetSettings net;
  ExperienceSettings experience;
  std::string from, from_digest;  // weights to begin with: a safetensors file, and what its digest must be

  DqnSettings() {
    shards = 8;
    batch_size = 256;
    steps = 15'000;  // the end of the fourth cycle below: a run ends with a low rate
    optimizer.learning_rate = 3e-4;
    optimizer.weight_decay = 1e-5;
    clip_norm = 10;
    schedule.kind = "cosine_restarts";
    schedule.restart_steps = 1000;
    schedule.restart_factor = 2;
  }

  int64_t rows() const { return capacity / (shards * environments); }  // of each environment's ring

  int64_t history_rings() const {
    if (experience.files.empty()) return 0;
    return std::max<int64_t>(1, std::llround(experience.share * static_cast<double>(environments)));
  }
  int64_t playing() const { return environments - history_rings(); }  // environments of a shard
  // How lines of history must look, and which of its agents this is; nothing: this recipe takes none.
  virtual std::optional<HistoryShape> history_shape() const { return std::nullopt; }
  virtual int32_t history_agent() const { return 0; }

  std::vector<std::string> units() const override { return {"episodes", "iterations"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    describe_environments(d);
    d.key("capacity", capacity, Range::between(1, 1e9), "decisions that the replay buffer keeps, over all shards");
    d.key("learning_starts", learning_starts, Range::between(0, 1e9), "random decisions stored before the first step");
    d.key("n_step", n_step, Range::between(1, 100), "rewards that are seen before the rest is estimated");
    d.key("gamma", gamma, Range::between(0, 1), "worth of a reward one decision later");
    d.key("target_rate", target_rate, Range::between(0, 1), "share of the way the target network moves each step");
    d.key("epsilon.start", epsilon_start, Range::between(0, 1), "share of random decisions at first");
    d.key("epsilon.end", epsilon_end, Range::between(0, 1), "share of random decisions in the end");
    d.key("epsilon.steps", epsilon_steps, Range::at_least(1), "steps until then");
    d.key("replay.alpha", alpha, Range::between(0, 1),
          "priority exponent: how much more often large TD errors are drawn; 0: uniformly");
    d.key("replay.beta_start", beta_start, Range::between(0, 1), "how far importance weights undo that, at first");
    d.key("replay.beta_end", beta_end, Range::between(0, 1), "how far in the end; 1: wholly");
    d.key("replay.beta_steps", beta_steps, Range::at_least(1), "steps until then");
    d.key("experience.files", experience.files,
          "JSON lines to learn from, separated by commas (docs/continuous-learning.md)", Role::kRunning);
    d.key("experience.digest", experience.digest, "SHA-256 of these files; set when the run begins");
    d.key("experience.share", experience.share, Range::between(0, 1),
          "share of the replay that holds them; 1: no environment runs");
    d.key("experience.holdout", experience.holdout, Range::from_up_to_below(0, 1),
          "share of them kept apart, to judge by");
    d.key("from", from, "weights to begin with, a safetensors file; --from RUN sets it", Role::kRunning);
    d.key("from_digest", from_digest, "their digest; set when the run begins");
    d.key("net.hidden", net.hidden, Range::between(1, 65536), "widths of the hidden layers");
    d.key("net.head", net.head, Range::between(1, 65536), "width inside each dueling head");
    d.key("net.dropout", net.dropout, Range::from_up_to_below(0, 1), "dropout of the hidden layers while learning");
    d.key("net.attention", net.attention, "attention among groups of features before the heads");
    d.key("net.tokens", net.tokens, Range::between(1, 4096), "groups that the features are cut into for attention");
    d.key("net.attention_heads", net.attention_heads, Range::between(1, 4096), "heads of the attention");
  }

  virtual void describe_environments(Describer& d) {
    d.key("environments", environments, Range::between(1, 65536), "environments of each shard");
  }

  void check() const override {
    RecipeSettings::check();
    if (net.hidden.empty())
      throw ConfigError("net.hidden is empty", "the heads need a layer to stand on", "set net.hidden = [512, 256]");
    if (net.attention && net.hidden.back() % (net.tokens * net.attention_heads) != 0)
      throw ConfigError(fmt::format("{} features do not divide by {} tokens x {} heads", net.hidden.back(), net.tokens,
                                    net.attention_heads),
                        "attention cuts the features into equal tokens, and these into equal heads",
                        "change net.tokens or net.attention_heads, or set net.attention = false");
    if (!experience.files.empty() && !history_shape())
      throw ConfigError("experience.files is set, but this recipe takes none",
                        "it does not say how many numbers a state has", "leave it out, or use web-agent");
    if (playing() == 0 && episodes > 0)
      throw ConfigError("episodes can't be counted where no environment runs",
                        "experience.share = 1 learns from history alone",
                        "give --steps, or a smaller experience.share");
    if (rows() < n_step + 2)
      throw ConfigError(fmt::format("a buffer of {} leaves {} decisions for each of {} x {} environments", capacity,
                                    rows(), shards, environments),
                        fmt::format("a transition of {} steps needs {}", n_step, n_step + 2),
                        fmt::format("set capacity to {} or more", (n_step + 2) * shards * environments));
  }
};

}  // namespace tandem
