// recipes/tiny_rl_settings.h -- settings of `tiny-rl`: a small Q-learner whose shards own games and a replay ring.
#pragma once

#include "config/run_settings.h"

namespace tandem {

struct TinyRlSettings : RecipeSettings {
  int64_t games = 2;   // per shard
  int64_t ring = 512;  // transitions kept per shard
  int64_t hidden = 32;
  double gamma = 0.95;
  double target_rate = 0.02;  // how fast the target network follows
  double epsilon_end = 0.05;
  int64_t epsilon_steps = 400;  // steps over which the share of random moves falls from 1 to epsilon_end

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
    d.key("games", games, Range::between(1, 4096), "games each shard plays at once");
    d.key("ring", ring, Range::between(1, 10'000'000), "transitions each shard keeps");
    d.key("hidden", hidden, Range::between(1, 65536), "width of the two hidden layers");
    d.key("gamma", gamma, Range::between(0, 1), "worth of a reward one move later");
    d.key("target_rate", target_rate, Range::between(0, 1), "share of the way the target network moves each step");
    d.key("epsilon_end", epsilon_end, Range::between(0, 1), "share of random moves in the end");
    d.key("epsilon_steps", epsilon_steps, Range::at_least(1), "steps until then");
  }
};

}  // namespace tandem
