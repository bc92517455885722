#include "engine/walk_recipe.h"

#include <torch/torch.h>

namespace tandem {
namespace {

constexpr int64_t kWalkWidth = 4;

}  // namespace

void WalkRecipe::build(JobState& state) {
  net = std::make_shared<torch::nn::LinearImpl>(kWalkWidth, 1);
  state.add_model(net);
  position = state.add_shard_field("position", {kWalkWidth}, at::kFloat, /*on_device=*/true);
}

std::vector<Phase> WalkRecipe::phases() const {
  return {{.name = "walk",
           .id = 0,
           .floats = 1,
           .counts = 1,
           .maxima = 1,
           .exchange = settings.messages,
           .all_to_all = settings.messages ? 0 : static_cast<int>(kWalkWidth),
           .every = settings.walk_every,
           .capturable = true,
           .changes_state = true},
          {.name = "learn", .id = 1, .gradients = true, .floats = 1, .capturable = !settings.messages}};
}

void WalkRecipe::init_shard(ShardContext& context) {
  context.state(position).copy_(at::arange(kWalkWidth, at::kFloat) * 0.1 + context.shard);
}

void WalkRecipe::run(const Phase& phase, ShardContext& context) {
  at::Tensor& place = context.state(position);
  if (phase.id == 0) return walk(place, context);
  at::Tensor heard = place + static_cast<double>(context.messages().size());
  if (!settings.messages) heard = heard + context.incoming_rows().sum(0);
  const at::Tensor loss = (net->forward(heard.unsqueeze(0)) - 1).pow(2).sum() / static_cast<double>(settings.shards);
  context.backward(loss);
  context.add(0, loss.detach());
}

void WalkRecipe::walk(at::Tensor& place, ShardContext& context) {
  at::NoGradGuard no_grad;
  context.alive();
  place.mul_(0.9).add_(net->weight.reshape({kWalkWidth}).sin());
  if (settings.step_dependent) place.add_(static_cast<double>(context.step));
  for (int to = 0; to < context.shards && !settings.messages; ++to)
    context.outgoing_rows()[to].copy_(place * (1.0 + to));
  if (settings.messages) context.send((context.shard + 1) % context.shards, std::vector<std::byte>(3));
  if (settings.host_sum)
    context.floats[0] += 1;
  else
    context.add(0, place.sum());
  context.count(0, (place > 1).sum());
  if (settings.secret) place.add_(static_cast<double>(context.step));
}

void WalkRecipe::apply(const Phase& phase, const Total& total, StepContext& context) {
  if (phase.id == 0)
    reported.insert(reported.end(), {total.floats[0], static_cast<double>(total.counts[0])});
  else
    context.record->loss = total.floats[0];
}

}  // namespace tandem
