// rl/ppo/ppo_collect.cc -- the first phase of rl/ppo/ppo.h: environments are stepped by the present policy.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "nn/here.h"
#include "nn/kernel_choice.h"
#include "nn/sites.h"
#include "rl/ppo/ppo.h"
#include "rl/ppo/ppo_sites.h"

namespace tandem {
namespace {

std::byte* bytes_of(const at::Tensor& states) { return reinterpret_cast<std::byte*>(states.data_ptr<uint8_t>()); }

// The layers of a pass over several shards, outside of the engine's own passes.
struct PassOfShards {
  PassOfShards(LayerContext& of, int shards) : layers(of) { layers.shards = shards; }
  ~PassOfShards() { layers.shards = 1; }
  LayerContext& layers;
};

}  // namespace

void Ppo::init_shard(ShardContext& context) {
  const at::Tensor& states = context.state(states_);
  environment_->reset(bytes_of(states), s_.environments, context.random(kInitialState), nullptr);
  const std::vector<int32_t> age(static_cast<size_t>(s_.environments), 0);
  // Where the first collecting carries it over from.
  observe(context, shape_.slots() - 1, age.data());
}

void Ppo::observe(ShardContext& context, int64_t slot, const int32_t* age) {
  const int64_t n = shape_.environments;
  const std::byte* const states = bytes_of(context.state(states_));
  at::Tensor own = at::empty({n, shape_.own}), row = at::zeros({n}, at::kInt);
  environment_->observe(states, own.data_ptr<float>(), n);
  environment_->table_rows(states, row.data_ptr<int32_t>(), n);
  context.state(own_).select(1, slot).copy_(own);
  context.state(row_).select(1, slot).copy_(row);
  context.state(age_).select(1, slot).copy_(at::from_blob(const_cast<int32_t*>(age), {n}, at::kInt));
}

// The last steps of the rollout before, which windows still see, and the observation that comes next.
void Ppo::carry_over(ShardContext& context) {
  for (const ShardField field : {own_, row_, age_}) {
    const at::Tensor& all = context.state(field);
    const at::Tensor last = all.narrow(1, shape_.horizon, shape_.window).clone();
    all.narrow(1, 0, shape_.window).copy_(last);
  }
}

void Ppo::collect(std::span<ShardContext> shards) {
  const at::NoGradGuard no_grad;
  const int64_t n = shape_.environments, count = static_cast<int64_t>(shards.size()),
                each = shape_.window * shape_.width();
  const PassOfShards pass(shards.front().job().layers(), static_cast<int>(count));
  for (ShardContext& context : shards) carry_over(context);
  const at::Tensor seen = at::empty({count * n, shape_.window, shape_.width()}, here());
  const at::Tensor number = at::empty({count * n}, here(at::kLong));
  const at::Tensor actions = at::zeros({count * n, shape_.action_floats()}, here());
  const PpoKernels& kernels = kernels_for<PpoKernels>(seen);
  void* const stream = stream_for(seen);
  RandomSource masks = shards.front().random(kDropoutSite);
  masks.shards = static_cast<int>(count);
  for (int64_t t = 0; t <= shape_.horizon; ++t) {
    for (int64_t i = 0; i < count; ++i)
      kernels.windows(rollout(shards[i], shards[i].shard), shape_, source_, t, rollout_number(shards[i]),
                      seen.data_ptr<float>() + i * n * each, number.data_ptr<int64_t>() + i * n, stream);
    const PolicyOutput out = net_->forward(seen, number, masks);
    const at::Tensor policy = out.policy.contiguous(), value = out.value.contiguous();
    const float* const deviation = net_->log_deviation.defined() ? net_->log_deviation.data_ptr<float>() : nullptr;
    for (int64_t i = 0; i < count; ++i)
      kernels.act(rollout(shards[i], shards[i].shard), shape_, t, policy.data_ptr<float>() + i * n * shape_.outputs(),
                  deviation, value.data_ptr<float>() + i * n, shards[i].random(kActSite),
                  actions.data_ptr<float>() + i * n * shape_.action_floats(), stream);
    if (t == shape_.horizon) break;
    const at::Tensor chosen = actions.cpu();
    for (int64_t i = 0; i < count; ++i) {
      step_environments(shards[i], t, chosen.narrow(0, i * n, n));
      shards[i].alive();
    }
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

void Ppo::step_environments(ShardContext& context, int64_t t, const at::Tensor& actions) {
  const int64_t n = shape_.environments, slot = shape_.window + t;  // of the next observation
  std::byte* const states = bytes_of(context.state(states_));
  int32_t *const ended = context.state(ended_).data_ptr<int32_t>(), *const length =
                                                                        context.state(lengths_).data_ptr<int32_t>();
  float *const returns = context.state(returns_).data_ptr<float>(), *const discounted =
                                                                        context.state(discounted_).data_ptr<float>();
  const auto key = [&](PpoSite site) {
    RandomKey k = context.random(site);
    k.step = static_cast<uint64_t>(rollout_number(context) * shape_.horizon + t);
    return k;
  };
  std::vector<Outcome> out(static_cast<size_t>(n));
  step_awake(states, actions.data_ptr<float>(), ended, out, key(kWorldSite));
  at::Tensor reward = at::empty({n}), weight = at::empty({n}), end = at::empty({n}, at::kInt);
  for (int64_t e = 0; e < n; ++e) {
    const Outcome& one = out[static_cast<size_t>(e)];
    const bool idle = ended[e] != 0;
    if (!std::isfinite(one.reward))
      throw Error(ExitCode::kFailed,
                  fmt::format("the environment gave the reward {} at step {} of an episode", one.reward, length[e] + 1),
                  "what is learned from it would be no number from then on, in every later checkpoint too",
                  "mend the environment, and go on from the last checkpoint with `tandem resume`");
    reward.data_ptr<float>()[e] = one.reward;
    weight.data_ptr<float>()[e] = idle ? 0.0f : 1.0f;
    end.data_ptr<int32_t>()[e] = static_cast<int32_t>(one.end);
    context.counts[kSteps] += idle ? 0 : 1;
    returns[e] += one.reward;
    discounted[e] = idle ? 0 : static_cast<float>(s_.gamma) * discounted[e] + one.reward;
    context.floats[kSquaredReturns] += discounted[e] * discounted[e];
    length[e] = idle ? 0 : length[e] + 1;
    ended[e] = static_cast<int32_t>(one.end);
  }
  context.state(reward_).select(1, t).copy_(reward);
  context.state(weight_).select(1, t).copy_(weight);
  context.state(end_).select(1, t).copy_(end);
  observe(context, slot, length);
  for (int64_t e = 0; e < n; ++e) {
    if (ended[e] == 0) continue;
    context.counts[kEpisodes] += 1;
    context.counts[kLength] += length[e];
    context.floats[kReturns] += returns[e];
    returns[e] = discounted[e] = 0;
  }
  environment_->reset(states, n, key(kNewEpisodeSite), out.data());
}

void Ppo::find_advantages(ShardContext& context) {
  const at::NoGradGuard no_grad;
  kernels_for<PpoKernels>(reward_scale_)
      .advantages(rollout(context, context.shard), shape_, reward_scale_.data_ptr<float>(),
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
