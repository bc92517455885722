// engine/walk_recipe.h -- a recipe whose phases do what few recipes need, for tests of executors.
//
// Each shard walks, tells all others where it is, and the net learns from what all reported.
//   walk     changes the shard's state on the device, sends a row to every shard, runs at every n-th step
//   learn    gradients, from the rows received
#pragma once

#include <memory>
#include <vector>

#include "engine/recipe.h"

namespace torch::nn {
class LinearImpl;
}

namespace tandem {

struct WalkSettings : RecipeSettings {
  bool host_sum = false, messages = false, step_dependent = false, secret = false;  // what can't be captured
  int64_t walk_every = 2;
  WalkSettings() {
    shards = 6;
    batch_size = 12;
    steps = 100;
    seed = 5;
    nan.rollback_every = 4;
  }
  void describe(Describer& d) override {
    RecipeSettings::describe(d);
    d.key("host_sum", host_sum, "adds up on the host");
    d.key("messages", messages, "sends messages through the host");
    d.key("step_dependent", step_dependent, "takes a number of the step from the host");
    d.key("secret", secret, "the same, in its state alone");
    d.key("walk_every", walk_every, Range::at_least(1), "steps between two walks");
  }
};

struct WalkRecipe : Recipe {
  explicit WalkRecipe(const WalkSettings& s) : settings(s) {}
  const WalkSettings& settings;
  std::shared_ptr<torch::nn::LinearImpl> net;
  ShardField position;
  std::vector<double> reported;  // to apply() of walk, in order

  void build(JobState& state) override;
  std::vector<Phase> phases() const override;
  void init_shard(ShardContext& context) override;
  void run(const Phase& phase, ShardContext& context) override;
  void walk(at::Tensor& place, ShardContext& context);
  void apply(const Phase& phase, const Total& total, StepContext& context) override;
};

}  // namespace tandem
