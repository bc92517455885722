// recipes/tiny_rl_settings.h -- settings of `tiny-rl`: a small Q-learner; shards own environments and replay buffers.
#pragma once

#include "config/run_settings.h"

namespace tandem {

struct TinyRlSettings : RecipeSettings {
  int64_t games = 2;   // per shard
  int64_t ring = 512;  // transitions kept per shard
  int64_t hidden = 32;
  double gamma = 0.95;
  double target_rate = 0.02;  // soft update rate of the target network (tau)
  double epsilon_end = 0.05;
  int64_t epsilon_steps = 400;  // over which epsilon falls from 1 to epsilon_end

  TinyRlSettings() {
    shards = 24;
    batch_size = 192;
    steps = 2000;
    optimizer.learning_rate = 2e-3;
    clip_norm = 10;
  }

  std::vector<std::string> units() const override { return {"episodes", "iterations"}; }

  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("games", games, Range::between(1, 4096), "parallel environments per shard");
    d.key("ring", ring, Range::between(1, 10'000'000), "size of each shard's replay buffer, in transitions");
    d.key("hidden", hidden, Range::between(1, 65536), "width of the two hidden layers");
    d.key("gamma", gamma, Range::between(0, 1), "discount factor");
    d.key("target_rate", target_rate, Range::between(0, 1), "soft update rate of the target network (tau)");
    d.key("epsilon_end", epsilon_end, Range::between(0, 1), "final epsilon of the epsilon-greedy policy");
    d.key("epsilon_steps", epsilon_steps, Range::at_least(1), "steps over which epsilon falls from 1 to epsilon_end");
  }
};

}  // namespace tandem
