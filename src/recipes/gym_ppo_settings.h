// recipes/gym_ppo_settings.h -- settings of `ppo`: any Gymnasium environment, with discrete or with continuous actions.
// The defaults are for small problems (observations of a few numbers, episodes of some hundred steps) on a CPU.
#pragma once

#include "recipes/gym_environment_settings.h"
#include "rl/ppo/ppo_settings.h"

namespace tandem {

struct GymPpoSettings : PpoSettings, GymEnvironmentSettings {
  GymPpoSettings() {
    shards = 4;
    batch_size = 64;
    steps = 16000;
    horizon = 512;
    update_epochs = 10;
    gamma = 0.95;
    gae_lambda = 0.95;
    entropy_weight = 0;
    scale_rewards = false;
    optimizer.learning_rate = 1e-3;
    schedule.kind = "cosine";
  }

  // As the learner counts them.
  GymPpoSettings learner() const {
    GymPpoSettings s(*this);
    s.environments = environments_per_shard(shards);
    return s;
  }

  void describe_environments(Describer& d) override { describe_gym(d); }

  void check() const override {
    check_count(shards);
    learner().PpoSettings::check();
  }
};

}  // namespace tandem
