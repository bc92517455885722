// recipes/gym_settings.h -- settings of `dqn`: any Gymnasium environment with discrete actions. The defaults are for
// small problems (observations of a few numbers, episodes of some hundred steps) on a CPU.
#pragma once

#include "recipes/gym_environment_settings.h"
#include "rl/dqn/dqn_settings.h"

namespace tandem {

struct GymSettings : DqnSettings, GymEnvironmentSettings {
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
    s.environments = environments_per_shard(shards);
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
    describe_gym(d);
    d.key("experience.state_size", history_state_size, Range::between(0, kMostHistoryStates),
          "numbers of a state in the experience; 0: as its first line has");
    d.key("experience.actions", history_actions, Range::between(0, kMostHistoryActions),
          "actions that the experience may have; 0: its largest and one");
  }

  void check() const override {
    learner().DqnSettings::check();
    check_count(shards);
  }
};

}  // namespace tandem
