// engine/walk_recipe.h -- a recipe whose phases do what few recipes need, for tests of executors.
//
// Each shard walks, tells all others where it is, and the net learns from what all told.
//   walk     changes the shard's state on the device, sends a row to every shard, runs at every n-th step
//   learn    gradients, from the rows received
#pragma once

#include <torch/torch.h>

#include <vector>

#include "engine/recipe.h"

namespace tandem {

struct WalkSettings : RecipeSettings {
  bool host_sum = false, messages = false, step_dependent = false;  // what can't be captured
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
    d.key("walk_every", walk_every, Range::at_least(1), "steps between two walks");
  }
};

struct WalkRecipe : Recipe {
  static constexpr int64_t kWidth = 4;
  explicit WalkRecipe(const WalkSettings& s) : settings(s) {}
  const WalkSettings& settings;
  torch::nn::Linear net{nullptr};
  ShardField position;
  std::vector<double> told;  // to apply() of walk, in order

  void build(JobState& state) override {
    net = torch::nn::Linear(kWidth, 1);
    state.add_model(net.ptr());
    position = state.add_shard_field("position", {kWidth}, at::kFloat, /*on_device=*/true);
  }
  std::vector<Phase> phases() const override {
    return {{.name = "walk",
             .id = 0,
             .floats = 1,
             .counts = 1,
             .maxima = 1,
             .exchange = settings.messages,
             .all_to_all = kWidth,
             .every = settings.walk_every,
             .capturable = true,
             .changes_state = true},
            {.name = "learn", .id = 1, .gradients = true, .floats = 1, .capturable = true}};
  }
  void init_shard(ShardContext& context) override {
    context.state(position).copy_(at::arange(kWidth, at::kFloat) * 0.1 + context.shard);
  }
  void run(const Phase& phase, ShardContext& context) override {
    at::Tensor& place = context.state(position);
    if (phase.id == 0) return walk(place, context);
    const at::Tensor heard = context.incoming_rows().sum(0) + place;
    const at::Tensor loss = (net(heard.unsqueeze(0)) - 1).pow(2).sum() / static_cast<double>(settings.shards);
    context.backward(loss);
    context.add(0, loss.detach());
  }
  void walk(at::Tensor& place, ShardContext& context) {
    at::NoGradGuard no_grad;
    context.alive();
    place.mul_(0.9).add_(net->weight.reshape({kWidth}).sin());
    if (settings.step_dependent) place.add_(static_cast<double>(context.step));
    for (int to = 0; to < context.shards; ++to) context.outgoing_rows()[to].copy_(place * (1.0 + to));
    if (settings.messages) context.send((context.shard + 1) % context.shards, std::vector<std::byte>(3));
    if (settings.host_sum)
      context.floats[0] += 1;
    else
      context.add(0, place.sum());
    context.count(0, (place > 1).sum());
  }
  void apply(const Phase& phase, const Total& total, StepContext& context) override {
    if (phase.id == 0)
      told.insert(told.end(), {total.floats[0], static_cast<double>(total.counts[0])});
    else
      context.record->loss = total.floats[0];
  }
};

}  // namespace tandem
