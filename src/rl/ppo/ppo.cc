#include "rl/ppo/ppo.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"
#include "nn/shard_sums.h"
#include "nn/sites.h"
#include "rl/ppo/ppo_loss.h"
#include "rl/ppo/ppo_sites.h"

namespace tandem {

Ppo::Ppo(const PpoSettings& settings, std::unique_ptr<Environment> environment)
    : s_(settings), environment_(std::move(environment)) {
  const ObservationTable table = environment_->table();
  shape_ = {.environments = s_.environments,
            .horizon = s_.horizon,
            .window = s_.window,
            .own = environment_->observation_size(),
            .table = table.width,
            .actions = environment_->actions(),
            .action_size = environment_->action_size()};
  if (s_.pretrain_iterations > 0) {
    const ObservationTable targets = environment_->forecast_targets();
    if (targets.width == 0)
      throw ConfigError("pretrain.iterations, but this environment has nothing to forecast",
                        "its observations are no rows of a table that goes on", "set pretrain.iterations to 0");
    forecast_targets_ =
        here(at::from_blob(const_cast<float*>(targets.rows), {targets.count, targets.width}, at::kFloat)).clone();
  }
  net_ = make_policy_net(s_, {.window = shape_.window,
                              .width = shape_.width(),
                              .outputs = shape_.outputs(),
                              .action_size = shape_.action_size,
                              .rules = environment_->action_rules(),
                              .own = shape_.own,
                              .forecasts = forecast_targets_.defined() ? forecast_targets_.size(1) : 0});
  at::Tensor before = at::zeros({shape_.own});
  environment_->observe_before(before.data_ptr<float>());
  before_ = here(before);
  if (table.width > 0)
    table_ = here(at::from_blob(const_cast<float*>(table.rows), {table.count, table.width}, at::kFloat)).clone();
  stepper_ = environment_->rollout_stepper();
  source_ = {table_.defined() ? table_.data_ptr<float>() : nullptr, before_.data_ptr<float>()};
}

Ppo::~Ppo() = default;

void Ppo::build(JobState& state) {
  state.add_model(net_, "", net_->initial_weights());
  advantage_scale_ = state.add_replicated("advantage_scale", at::zeros({3}, here()));
  average_ = state.add_replicated("average_return", at::zeros({3}, at::kDouble));
  reward_scale_ = state.add_replicated("reward_scale", at::ones({1}, here()));
  spread_ = state.add_replicated("spread_of_returns", at::zeros({2}, at::kDouble));
  if (forecast_targets_.defined()) objective_ = state.add_replicated("objective", here(at::arange(2, at::kFloat)));
  const int64_t n = shape_.environments, slots = shape_.slots(), horizon = shape_.horizon;
  const auto beside_the_net = [&](const char* name, std::vector<int64_t> sizes, at::ScalarType type) {
    return state.add_shard_field(name, std::move(sizes), type, /*on_device=*/true);
  };
  const auto field = [&](const char* name, std::vector<int64_t> sizes, at::ScalarType type) {
    return state.add_shard_field(std::string("rollout.") + name, std::move(sizes), type, /*on_device=*/true);
  };
  states_ = state.add_shard_field("environments", {n, environment_->state_bytes()}, at::kByte,
                                  /*on_device=*/stepper_ != nullptr);
  returns_ = beside_the_net("returns", {n}, at::kFloat);
  discounted_ = beside_the_net("discounted", {n}, at::kFloat);
  lengths_ = beside_the_net("lengths", {n}, at::kInt);
  ended_ = beside_the_net("ended", {n}, at::kInt);
  own_ = field("own", {n, slots, shape_.own}, at::kFloat);
  row_ = field("row", {n, slots}, at::kInt);
  age_ = field("age", {n, slots}, at::kInt);
  action_ = field("action", {n, horizon, shape_.action_floats()}, at::kFloat);
  log_prob_ = field("log_prob", {n, horizon}, at::kFloat);
  value_ = field("value", {n, horizon + 1}, at::kFloat);
  reward_ = field("reward", {n, horizon}, at::kFloat);
  end_ = field("end", {n, horizon}, at::kInt);
  weight_ = field("weight", {n, horizon}, at::kFloat);
  advantage_ = field("advantage", {n, horizon}, at::kFloat);
  target_ = field("target", {n, horizon}, at::kFloat);
}

std::vector<Phase> Ppo::phases() const {
  return {{.name = "collect",
           .id = kCollectPhase,
           .floats = kCollectSums,
           .counts = kCollectCounts,
           .every = s_.updates_per_rollout(),
           .capturable = stepper_ != nullptr,
           .changes_state = stepper_ != nullptr,
           .batched = stepper_ == nullptr,
           .grouped = stepper_ != nullptr},
          {.name = "advantages",
           .id = kAdvantagePhase,
           .floats = kAdvantageSums,
           .counts = 1,
           .every = s_.updates_per_rollout()},
          {.name = "learn",
           .id = kLearnPhase,
           .gradients = true,
           .one_backward = true,
           .floats = static_cast<int>(forecast_sum() + (forecast_targets_.defined() ? 1 : 0)),
           .capturable = true,
           .grouped = true}};
}

Rollout Ppo::rollout(JobState& job, int shard) const {
  const auto floats = [&](ShardField field) { return job.shard(field, shard).data_ptr<float>(); };
  const auto whole = [&](ShardField field) { return job.shard(field, shard).data_ptr<int32_t>(); };
  return {.own = floats(own_),
          .row = whole(row_),
          .age = whole(age_),
          .action = floats(action_),
          .log_prob = floats(log_prob_),
          .value = floats(value_),
          .reward = floats(reward_),
          .end = whole(end_),
          .weight = floats(weight_),
          .advantage = floats(advantage_),
          .target = floats(target_)};
}

void Ppo::run(const Phase& phase, ShardContext& context) {
  if (phase.id == kAdvantagePhase) return find_advantages(context);
  if (phase.id == kLearnPhase) return learn(context);
  const Collected got = collect(context, context.group);
  context.add(0, got.floats);
  const at::Tensor counts = got.counts.sum(0);
  for (int k = 0; k < kCollectCounts; ++k) context.count(k, counts[k]);
}

void Ppo::run_batched(const Phase&, std::span<ShardContext> shards, std::span<const Subtree>) {
  const Collected got = collect(shards.front(), static_cast<int>(shards.size()));
  const at::Tensor floats = got.floats.cpu(), counts = got.counts.cpu();
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto shard = static_cast<int64_t>(i);
    for (int k = 0; k < kCollectSums; ++k) shards[i].floats[static_cast<size_t>(k)] += floats[shard][k].item<float>();
    for (int k = 0; k < kCollectCounts; ++k)
      shards[i].counts[static_cast<size_t>(k)] += counts[shard][k].item<int64_t>();
  }
}

// ---- learning ----

MiniBatchPlan Ppo::mini_batches() const {
  const int64_t rows = s_.micro_batch_size();
  return {.rows = rows, .batches = shape_.rows() / rows, .epochs = s_.update_epochs};
}

void Ppo::learn(ShardContext& context) {
  const MiniBatchPlan plan = mini_batches();
  const int64_t rows = plan.rows, all = rows * context.group, floats = shape_.action_floats();
  PpoBatch batch{.seen = at::empty({all, shape_.window, shape_.width()}, here()),
                 .action = at::empty({all, floats}, here()),
                 .log_prob = at::empty({all}, here()),
                 .advantage = at::empty({all}, here()),
                 .target = at::empty({all}, here()),
                 .weight = at::empty({all}, here()),
                 .number = at::empty({all}, here(at::kLong)),
                 .table_row = at::empty({all}, here(at::kLong))};
  for (int i = 0; i < context.group; ++i) {
    RandomSource order = context.random(kShuffleSite);
    order.shard += static_cast<uint32_t>(i);
    kernels_for<PpoKernels>(batch.seen)
        .gather(rollout(context.job(), context.shard + i), shape_, source_, plan, advantage_scale_.data_ptr<float>(),
                order, batch.rows_from(i * rows), stream_for(batch.seen));
  }
  const PolicyOutput out = net_->forward(batch.seen, batch.number, context.random(kDropoutSite));
  const PpoWeights weights{static_cast<float>(s_.clip_range), static_cast<float>(s_.value_weight),
                           static_cast<float>(s_.entropy_weight)};
  const PpoLosses losses = ppo_losses(out, batch, shape_, weights, context.group);
  const at::Tensor of_real = advantage_scale_.select(0, 2) * (1 / static_cast<double>(s_.batch_size));
  const at::Tensor ones = at::ones({all}, here());
  at::Tensor rows_of_loss = losses.rows;
  if (forecast_targets_.defined()) {
    const at::Tensor errors =
        forecast_losses(out.forecast, forecast_targets_.index_select(0, batch.table_row), batch.weight);
    rows_of_loss = rows_of_loss * objective_[0] + errors * objective_[1];
    context.add(static_cast<int>(forecast_sum()), shard_sums(errors.detach(), ones, context.group) * of_real);
  }
  const at::Tensor loss = shard_sums(rows_of_loss, ones, context.group) * of_real;
  context.backward(loss);
  context.add(0, loss);
  context.add(1, losses.terms * of_real);
}

void Ppo::apply(const Phase& phase, const Total& total, StepContext& context) {
  if (phase.id == kCollectPhase) return collected(total);
  if (phase.id == kAdvantagePhase) return scaled(total);
  learned(total, context);
}

void Ppo::collected(const Total& total) {
  if (!std::isfinite(total.floats[kSquaredReturns])) refuse_rewards("in this rollout");
  double* const average = average_.data_ptr<double>();  // return, length, known
  if (const double ended = static_cast<double>(total.counts[kEpisodes]); ended > 0) {
    const double found[2] = {total.floats[kReturns] / ended, static_cast<double>(total.counts[kLength]) / ended};
    for (int i = 0; i < 2; ++i) average[i] = average[2] > 0 ? average[i] + 0.5 * (found[i] - average[i]) : found[i];
    average[2] = 1;
  }
  if (!s_.scale_rewards) return;
  // A mean over all steps so far, of which at most kRememberedRollouts count: it follows a policy that gets better.
  constexpr double kRememberedRollouts = 20;
  double* const spread = spread_.data_ptr<double>();
  const double steps = static_cast<double>(total.counts[kSteps]);
  spread[1] = std::min(spread[1], kRememberedRollouts * static_cast<double>(s_.rollout_steps())) + steps;
  if (spread[1] > 0) spread[0] += (total.floats[kSquaredReturns] - steps * spread[0]) / spread[1];
  reward_scale_.fill_(1 / (std::sqrt(std::max(0.0, spread[0])) + 1e-6));
}

void Ppo::scaled(const Total& total) {
  const double steps = std::max(1.0, static_cast<double>(total.counts[0]));
  const double mean = total.floats[kAdvantages] / steps;
  const double variance = std::max(0.0, total.floats[kSquares] / steps - mean * mean);
  // Idle rows are in the batches: what is learned is a mean over the others.
  const float of_real = static_cast<float>(static_cast<double>(s_.rollout_steps()) / steps);
  const float scale[3] = {s_.normalize_advantages ? static_cast<float>(mean) : 0.0f,
                          s_.normalize_advantages ? static_cast<float>(1 / (std::sqrt(variance) + 1e-8)) : 1.0f,
                          of_real};
  advantage_scale_.copy_(at::from_blob(const_cast<float*>(scale), {3}, at::kFloat));
}

void Ppo::learned(const Total& total, StepContext& context) {
  StepRecord& record = *context.record;
  record.loss = total.floats[0];
  record.samples = static_cast<double>(s_.batch_size);
  record.epoch = context.step / (s_.updates_per_rollout() / s_.update_epochs);
  const double* const average = average_.data_ptr<double>();
  if (average[2] > 0) {
    record.metrics.emplace_back("average_return", average[0]);
    record.metrics.emplace_back("episode_length", average[1]);
  }
  const auto term = [&](const char* name, PpoTerm index) {
    record.metrics.emplace_back(name, total.floats[1 + index]);
  };
  if (objective_.defined() && context.step < s_.pretrain_updates())
    record.metrics.emplace_back("forecast_loss", total.floats[static_cast<size_t>(forecast_sum())]);
  if (objective_.defined() && context.step + 1 == s_.pretrain_updates())
    objective_.copy_(at::arange(1, -1, -1, at::kFloat));
  term("policy_loss", kPolicyTerm);
  term("value_loss", kValueTerm);
  term("entropy", kEntropyTerm);
  term("kl", kKlTerm);
  term("clipped", kClippedTerm);
}

int64_t Ppo::steps_in(const std::string& unit, int64_t count) const {
  if (unit == "iterations") return count * s_.updates_per_rollout();
  if (unit != "episodes") return 0;
  const int64_t steps = count * environment_->max_episode_steps(), each = s_.rollout_steps();
  return (steps + each - 1) / each * s_.updates_per_rollout();
}

std::vector<int32_t> Ppo::best_actions(std::span<const float> observations) const {
  if (shape_.window > 1 || shape_.table > 0 || shape_.action_size > 0)
    throw std::logic_error("only a policy without a window, of discrete actions, says what is best for an observation");
  const at::NoGradGuard no_grad;
  const int64_t n = static_cast<int64_t>(observations.size()) / shape_.own;
  const at::Tensor seen = here(at::from_blob(const_cast<float*>(observations.data()), {n, 1, shape_.own}, at::kFloat));
  const at::Tensor policy =
      net_->forward(seen, at::zeros({n}, here(at::kLong)), std::nullopt).policy.cpu().contiguous();
  std::vector<int32_t> best(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    best[static_cast<size_t>(i)] =
        likeliest_action(policy.const_data_ptr<float>() + i * shape_.actions, shape_.actions);
  return best;
}

}  // namespace tandem
