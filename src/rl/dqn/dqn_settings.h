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
  std::string files;               // separated by commas; empty: none
  std::string digest;              // of their bytes; set when the run begins
  double share = 1;                // of the replay's rings that hold them; 1: no environment runs
  double holdout = 0.1;            // kept apart to judge by
  std::string split = "segments";  // what is kept apart; a new run has "episodes", one without the key is older
};

struct DqnSettings : RecipeSettings {
  int64_t environments = 32;     // per shard
  int64_t capacity = 1'000'000;  // environment steps kept, over all shards
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
    steps = 15'000;  // the end of the fourth cycle below: a run ends with a low learning rate
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
  // The sizes of a history whose shape left them open, before the settings are frozen.
  virtual void take_history_sizes(int64_t /*state_size*/, int64_t /*actions*/) {}

  std::vector<std::string> units() const override { return {"episodes", "iterations"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    describe_environments(d);
    d.key("capacity", capacity, Range::between(1, 1e9),
          "size of the replay buffer in environment steps, over all shards");
    d.key("learning_starts", learning_starts, Range::between(0, 1e9),
          "random environment steps stored before the first update");
    d.key("n_step", n_step, Range::between(1, 100), "n of the n-step return");
    d.key("gamma", gamma, Range::between(0, 1), "discount factor");
    d.key("target_rate", target_rate, Range::between(0, 1), "soft update rate of the target network (tau)");
    d.key("epsilon.start", epsilon_start, Range::between(0, 1), "initial epsilon of the epsilon-greedy policy");
    d.key("epsilon.end", epsilon_end, Range::between(0, 1), "final epsilon");
    d.key("epsilon.steps", epsilon_steps, Range::at_least(1), "steps over which epsilon falls");
    d.key("replay.alpha", alpha, Range::between(0, 1), "priority exponent of prioritized replay; 0: uniform draws");
    d.key("replay.beta_start", beta_start, Range::between(0, 1), "initial exponent of the importance weights");
    d.key("replay.beta_end", beta_end, Range::between(0, 1), "final exponent of the importance weights");
    d.key("replay.beta_steps", beta_steps, Range::at_least(1), "steps over which beta goes to its end");
    d.key("experience.files", experience.files,
          "JSON lines to learn from, separated by commas (docs/continuous-learning.md)", Role::kRunning);
    d.key("experience.digest", experience.digest, "SHA-256 of these files; set when the run begins");
    d.key("experience.share", experience.share, Range::between(0, 1),
          "fraction of the replay buffer that holds them; 1: offline, no environment runs");
    d.key("experience.holdout", experience.holdout, Range::from_up_to_below(0, 1),
          "fraction of their episodes held out for evaluation");
    d.key("experience.split", experience.split, Choices{{"segments", "episodes"}},
          "what is held out: whole episodes by their hash, or every n-th segment as older runs did; set at the start");
    d.key("from", from, "initial weights, a safetensors file; --from RUN sets it", Role::kRunning);
    d.key("from_digest", from_digest, "their digest; set when the run begins");
    d.key("net.hidden", net.hidden, Range::between(1, 65536), "widths of the hidden layers");
    d.key("net.head", net.head, Range::between(1, 65536), "hidden width of the value head and of the advantage head");
    d.key("net.dropout", net.dropout, Range::from_up_to_below(0, 1), "dropout probability of the hidden layers");
    d.key("net.attention", net.attention, "multi-head self-attention among groups of features, before the heads");
    d.key("net.tokens", net.tokens, Range::between(1, 4096), "groups of features (tokens) for the attention");
    d.key("net.attention_heads", net.attention_heads, Range::between(1, 4096), "attention heads");
  }

  virtual void describe_environments(Describer& d) {
    d.key("environments", environments, Range::between(1, 65536), "parallel environments per shard");
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
                        "it does not say how many numbers a state has", "leave it out, or use dqn or web-agent");
    if (playing() == 0 && episodes > 0)
      throw ConfigError("episodes can't be counted where no environment runs",
                        "experience.share = 1 learns from history alone",
                        "give --steps, or a smaller experience.share");
    if (rows() < n_step + 2)
      throw ConfigError(fmt::format("a buffer of {} leaves {} steps for each of {} x {} environments", capacity, rows(),
                                    shards, environments),
                        fmt::format("a transition of {} steps needs {}", n_step, n_step + 2),
                        fmt::format("set capacity to {} or more", (n_step + 2) * shards * environments));
  }
};

}  // namespace tandem
