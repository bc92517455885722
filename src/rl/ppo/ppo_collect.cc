// rl/ppo/ppo_collect.cc -- the first phase of rl/ppo/ppo.h: environments are stepped by the present policy, on the host
// or, where they have a stepper, beside the net: on a GPU the phase is then one CUDA graph.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"
#include "nn/shard_sums.h"
#include "nn/sites.h"
#include "rl/ppo/ppo.h"
#include "rl/ppo/ppo_sites.h"

namespace tandem {
namespace {

std::byte* bytes_of(const at::Tensor& states) { return reinterpret_cast<std::byte*>(states.data_ptr<uint8_t>()); }

// The layers of a pass over several shards, also outside of the engine's own passes.
struct PassOfShards {
  PassOfShards(LayerContext& of, int shards) : layers(of), before(of.shards) { layers.shards = shards; }
  ~PassOfShards() { layers.shards = before; }
  LayerContext& layers;
  int before;
};

}  // namespace

void Ppo::init_shard(ShardContext& context) {
  at::Tensor& states = context.state(states_);
  const at::Tensor begun = at::zeros({s_.environments, environment_->state_bytes()}, at::kByte);
  environment_->reset(bytes_of(begun), s_.environments, context.random(kInitialState), nullptr);
  states.copy_(begun);
  // Where the first collecting carries it over from.
  const int64_t n = shape_.environments, slot = shape_.slots() - 1;
  const at::Tensor own = at::empty({n, shape_.own}), row = at::zeros({n}, at::kInt);
  environment_->observe(bytes_of(begun), own.data_ptr<float>(), n);
  environment_->table_rows(bytes_of(begun), row.data_ptr<int32_t>(), n);
  context.state(own_).select(1, slot).copy_(own);
  context.state(row_).select(1, slot).copy_(row);
}

// The last steps of the rollout before, which windows still see, and the observation that comes next.
void Ppo::carry_over(JobState& job, int shard) {
  for (const ShardField field : {own_, row_, age_}) {
    const at::Tensor& all = job.shard(field, shard);
    const at::Tensor last = all.narrow(1, shape_.horizon, shape_.window).clone();
    all.narrow(1, 0, shape_.window).copy_(last);
  }
}

// What a pass over the rollouts of several shards works with: of each shard `n` of everything, one after the other.
struct Ppo::CollectPass {
  CollectPass(const Ppo& ppo, ShardContext& context, int shards)
      : first(context),
        count(shards),
        n(ppo.shape_.environments),
        seen(at::empty({count * n, ppo.shape_.window, ppo.shape_.width()}, here())),
        number(at::empty({count * n}, here(at::kLong))),
        actions(at::zeros({count * n, ppo.shape_.action_floats()}, here())),
        rewards(at::zeros({count * n}, here())),
        ends(at::zeros({count * n}, here(at::kInt))),
        own(at::zeros({count * n, ppo.shape_.own}, here())),
        rows(at::zeros({count * n}, here(at::kInt))),
        squares(at::zeros({count * n}, here())),
        finished(at::zeros({count * n}, here())),
        counts(at::zeros({count * n, kTallyCounts}, here(at::kLong))) {}

  int shard(int i) const { return first.shard + i; }
  RandomSource key(PpoSite site, int i) const {
    RandomSource key = first.random(site);
    key.shard += static_cast<uint32_t>(i);
    key.shards = 1;
    return key;
  }
  RolloutStep step(int i, int64_t own_size) const {
    return {rewards.data_ptr<float>() + i * n, ends.data_ptr<int32_t>() + i * n,
            own.data_ptr<float>() + i * n * own_size, rows.data_ptr<int32_t>() + i * n};
  }

  ShardContext& first;
  int count;
  int64_t n;
  at::Tensor seen, number, actions;      // of the net
  at::Tensor rewards, ends, own, rows;   // of the environments: RolloutStep
  at::Tensor squares, finished, counts;  // RolloutTally
};

RolloutTally Ppo::tally(const CollectPass& pass, int i) const {
  JobState& job = pass.first.job();
  const int shard = pass.shard(i);
  return {.returned = job.shard(returns_, shard).data_ptr<float>(),
          .discounted = job.shard(discounted_, shard).data_ptr<float>(),
          .length = job.shard(lengths_, shard).data_ptr<int32_t>(),
          .ended = job.shard(ended_, shard).data_ptr<int32_t>(),
          .squares = pass.squares.data_ptr<float>() + i * pass.n,
          .finished = pass.finished.data_ptr<float>() + i * pass.n,
          .counts = pass.counts.data_ptr<int64_t>() + i * pass.n * kTallyCounts};
}

Ppo::Collected Ppo::collect(ShardContext& context, int count) {
  const at::NoGradGuard no_grad;
  const PassOfShards layers(context.job().layers(), count);
  CollectPass pass(*this, context, count);
  for (int i = 0; i < count; ++i) carry_over(context.job(), pass.shard(i));
  RandomSource masks = context.random(kDropoutSite);
  masks.shards = count;
  const PpoKernels& kernels = kernels_for<PpoKernels>(pass.seen);
  void* const stream = stream_for(pass.seen);
  for (int64_t t = 0; t <= shape_.horizon; ++t) {
    act(pass, masks, t);
    if (t == shape_.horizon) break;
    if (stepper_)
      step_where_the_policy_is(pass, t);
    else
      step_on_the_host(pass, t);
    for (int i = 0; i < count; ++i)
      kernels.note(rollout(context.job(), pass.shard(i)), shape_, t, pass.step(i, shape_.own), tally(pass, i),
                   static_cast<float>(s_.gamma), stream);
    context.alive();
  }
  const at::Tensor ones = at::ones({count * pass.n}, here());
  return {at::stack({shard_sums(pass.finished, ones, count), shard_sums(pass.squares, ones, count)}, 1),
          pass.counts.view({count, pass.n, kTallyCounts}).sum(1)};
}

// Windows, policy, actions of time step t; of the last one, which is not played, only the values are kept.
void Ppo::act(CollectPass& pass, const RandomSource& masks, int64_t t) {
  const int64_t n = pass.n, each = shape_.window * shape_.width();
  const PpoKernels& kernels = kernels_for<PpoKernels>(pass.seen);
  void* const stream = stream_for(pass.seen);
  JobState& job = pass.first.job();
  for (int i = 0; i < pass.count; ++i)
    kernels.windows(rollout(job, pass.shard(i)), shape_, source_, t, clock(), pass.key(kActSite, i),
                    pass.seen.data_ptr<float>() + i * n * each, pass.number.data_ptr<int64_t>() + i * n, stream);
  const PolicyOutput out = net_->forward(pass.seen, pass.number, masks);
  const at::Tensor policy = out.policy.contiguous(), value = out.value.contiguous();
  const float* const deviation = net_->log_deviation.defined() ? net_->log_deviation.data_ptr<float>() : nullptr;
  for (int i = 0; i < pass.count; ++i)
    kernels.act(rollout(job, pass.shard(i)), shape_, t, policy.data_ptr<float>() + i * n * shape_.outputs(), deviation,
                value.data_ptr<float>() + i * n, pass.key(kActSite, i),
                pass.actions.data_ptr<float>() + i * n * shape_.action_floats(), stream);
}

void Ppo::step_where_the_policy_is(CollectPass& pass, int64_t t) {
  JobState& job = pass.first.job();
  for (int i = 0; i < pass.count; ++i) {
    const int64_t at = i * pass.n;
    stepper_->queue({.states = bytes_of(job.shard(states_, pass.shard(i))),
                     .actions = pass.actions.data_ptr<float>() + at * shape_.action_floats(),
                     .idle = job.shard(ended_, pass.shard(i)).data_ptr<int32_t>(),
                     .rewards = pass.rewards.data_ptr<float>() + at,
                     .ends = pass.ends.data_ptr<int32_t>() + at,
                     .observed = pass.own.data_ptr<float>() + at * shape_.own,
                     .rows = pass.rows.data_ptr<int32_t>() + at},
                    pass.n, clock(), pass.key(kNewEpisodeSite, i), t, stream_for(pass.seen));
  }
}

// One step of each environment but the idle ones, whose new episode waits; their outcomes are empty. States are values:
// what is put back has not been stepped.
void Ppo::step_awake(std::byte* states, const float* actions, const int32_t* idle, std::vector<Outcome>& out,
                     const RandomKey& key) const {
  const int64_t n = shape_.environments, bytes = environment_->state_bytes();
  if (environment_->step_awake(states, actions, idle, out.data(), n, key)) return;
  std::vector<std::byte> kept;
  for (int64_t e = 0; e < n; ++e)
    if (idle[e]) kept.insert(kept.end(), states + e * bytes, states + (e + 1) * bytes);
  if (shape_.action_size > 0) {
    environment_->step_continuous(states, actions, out.data(), n, key);
  } else {
    std::vector<int32_t> chosen(static_cast<size_t>(n));
    for (int64_t e = 0; e < n; ++e) chosen[static_cast<size_t>(e)] = static_cast<int32_t>(actions[e]);
    environment_->step(states, chosen.data(), out.data(), n, key);
  }
  const std::byte* from = kept.data();
  for (int64_t e = 0; e < n; ++e) {
    if (!idle[e]) continue;
    std::memcpy(states + e * bytes, from, static_cast<size_t>(bytes));
    from += bytes;
    out[static_cast<size_t>(e)] = {};
  }
}

void Ppo::step_on_the_host(CollectPass& pass, int64_t t) {
  const int64_t n = pass.n;
  JobState& job = pass.first.job();
  const at::Tensor actions = pass.actions.cpu();
  const at::Tensor rewards = at::zeros({pass.count * n}), ends = at::zeros({pass.count * n}, at::kInt),
                   own = at::empty({pass.count * n, shape_.own}), rows = at::zeros({pass.count * n}, at::kInt);
  for (int i = 0; i < pass.count; ++i) {
    std::byte* const states = bytes_of(job.shard(states_, pass.shard(i)));
    const at::Tensor idle = job.shard(ended_, pass.shard(i)).cpu();
    std::vector<Outcome> out(static_cast<size_t>(n));
    step_awake(states, actions.data_ptr<float>() + i * n * shape_.action_floats(), idle.data_ptr<int32_t>(), out,
               clock().at(pass.key(kWorldSite, i), t));
    for (int64_t e = 0; e < n; ++e) {
      const Outcome& one = out[static_cast<size_t>(e)];
      if (!std::isfinite(one.reward))
        refuse_rewards(
            fmt::format("at step {} of an episode", job.shard(lengths_, pass.shard(i))[e].item<int32_t>() + 1));
      rewards.data_ptr<float>()[i * n + e] = one.reward;
      ends.data_ptr<int32_t>()[i * n + e] = static_cast<int32_t>(one.end);
    }
    environment_->observe(states, own.data_ptr<float>() + i * n * shape_.own, n);
    environment_->table_rows(states, rows.data_ptr<int32_t>() + i * n, n);
    environment_->reset(states, n, clock().at(pass.key(kNewEpisodeSite, i), t), out.data());
    pass.first.alive();
  }
  pass.rewards.copy_(rewards);
  pass.ends.copy_(ends);
  pass.own.copy_(own);
  pass.rows.copy_(rows);
}

void Ppo::refuse_rewards(const std::string& where) {
  throw Error(ExitCode::kFailed, "the environment gave a reward that is no number, " + where,
              "what is learned from it would be no number from then on, in every later checkpoint too",
              "mend the environment, and go on from the last checkpoint with `tandem resume`");
}

void Ppo::find_advantages(ShardContext& context) {
  const at::NoGradGuard no_grad;
  kernels_for<PpoKernels>(reward_scale_)
      .advantages(rollout(context.job(), context.shard), shape_, reward_scale_.data_ptr<float>(),
                  static_cast<float>(s_.gamma), static_cast<float>(s_.gae_lambda), stream_for(reward_scale_));
  const at::Tensor advantage = context.state(advantage_).cpu(), weight = context.state(weight_).cpu();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < shape_.rows(); ++i) {
    const double value = advantage.data_ptr<float>()[i];
    if (weight.data_ptr<float>()[i] == 0) continue;
    sum += value;
    squares += value * value;
    context.counts[0] += 1;
  }
  context.floats[kAdvantages] += static_cast<float>(sum);
  context.floats[kSquares] += static_cast<float>(squares);
}

}  // namespace tandem
