// PPO: its arithmetic beside plain references, and the learner on problems whose solutions are known.
#include "rl/ppo/ppo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>

#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "nn/test_pass.h"
#include "rl/ppo/ppo_loss.h"

namespace tandem {
namespace {

// ---- advantages ----

TEST(PpoAdvantages, EqualTheSumOfDiscountedErrorsOfTheirEpisode) {
  // Steps 0-2 an episode that is truncated, 3 idle, 4-5 one that terminates, 6 idle, 7 goes on.
  const std::vector<float> reward{1, 2, -1, 0, 3, 1, 0, 2}, value{.5f, 1, 2, -3, 1, .25f, 9, 2, 4};
  const std::vector<int32_t> end{0, 0, 2, 0, 0, 1, 0, 0};
  const std::vector<float> weight{1, 1, 1, 0, 1, 1, 0, 1};
  std::vector<float> advantage(8), target(8);
  const double gamma = .9, lambda = .8;
  advantages(reward.data(), 2, value.data(), end.data(), weight.data(), 8, gamma, lambda, advantage.data(), target.data());
  const auto delta = [&](int t, double next) { return 2 * reward[t] + gamma * next - value[t]; };
  const double d2 = delta(2, -3), d1 = delta(1, 2), d0 = delta(0, 1);
  EXPECT_NEAR(advantage[2], d2, 1e-6);  // its last observation is worth what the idle step says
  EXPECT_NEAR(advantage[1], d1 + gamma * lambda * d2, 1e-6);
  EXPECT_NEAR(advantage[0], d0 + gamma * lambda * (d1 + gamma * lambda * d2), 1e-6);
  EXPECT_EQ(advantage[3], 0);
  EXPECT_NEAR(advantage[5], 2 - .25, 1e-6);  // nothing comes after the end
  EXPECT_NEAR(advantage[4], delta(4, .25) + gamma * lambda * 1.75, 1e-6);
  EXPECT_NEAR(advantage[7], delta(7, 4), 1e-6);
  for (int t = 0; t < 8; ++t) EXPECT_NEAR(target[t], advantage[t] + value[t], 1e-6);
}

// ---- the loss ----

PpoBatch some_rows(int64_t rows, int64_t outputs, bool continuous) {
  PpoBatch batch{.seen = at::zeros({rows, 1, 1}),
                 .action = continuous ? test_numbers({rows, outputs}, 1)
                                      : at::arange(rows).remainder(outputs).to(at::kFloat).view({rows, 1}),
                 .log_prob = test_numbers({rows}, 2, .3f) - std::log(static_cast<double>(outputs)),
                 .advantage = test_numbers({rows}, 3),
                 .target = test_numbers({rows}, 4),
                 .weight = at::ones({rows}),
                 .number = at::arange(rows),
                 .table_row = at::zeros({rows}, at::kLong)};
  batch.weight[1] = 0;
  return batch;
}

struct Found {
  at::Tensor loss, d_policy, d_value, d_deviation;
};

Found by_kernel(const PpoBatch& batch, at::Tensor policy, at::Tensor value, at::Tensor deviation, const PpoWeights& w) {
  policy = policy.clone().requires_grad_();
  value = value.clone().requires_grad_();
  if (deviation.defined()) deviation = deviation.clone().requires_grad_();
  const int64_t outputs = policy.size(1);
  const RolloutShape shape{.actions = deviation.defined() ? 0 : outputs,
                           .action_size = deviation.defined() ? outputs : 0};
  const PpoLosses losses = ppo_losses({policy, value, deviation}, batch, shape, w, 1);
  losses.rows.sum().backward();
  return {losses.rows.detach(), policy.grad(), value.grad(), deviation.defined() ? deviation.grad() : at::Tensor()};
}

// As every textbook writes it, by autograd.
Found by_autograd(const PpoBatch& batch, at::Tensor policy, at::Tensor value, at::Tensor deviation,
                  const PpoWeights& w) {
  policy = policy.to(at::kDouble).requires_grad_();
  value = value.to(at::kDouble).requires_grad_();
  if (deviation.defined()) deviation = deviation.to(at::kDouble).requires_grad_();
  at::Tensor log_prob, entropy;
  if (deviation.defined()) {
    const at::Tensor z = (batch.action.to(at::kDouble) - policy) / deviation.exp();
    log_prob = (-z * z / 2 - deviation - 0.5 * std::log(2 * M_PI)).sum(1);
    entropy = (deviation + 0.5 + 0.5 * std::log(2 * M_PI)).sum(1);
  } else {
    const at::Tensor all = at::log_softmax(policy, 1);
    log_prob = all.gather(1, batch.action.to(at::kLong)).squeeze(1);
    entropy = -(all.exp() * all).sum(1);
  }
  const at::Tensor ratio = (log_prob - batch.log_prob.to(at::kDouble)).exp(), a = batch.advantage.to(at::kDouble);
  const at::Tensor policy_loss = -at::minimum(ratio * a, ratio.clamp(1 - w.clip_range, 1 + w.clip_range) * a);
  const at::Tensor rows =
      batch.weight * (policy_loss + w.value * (value - batch.target.to(at::kDouble)).pow(2) - w.entropy * entropy);
  rows.sum().backward();
  return {rows.detach(), policy.grad(), value.grad(), deviation.defined() ? deviation.grad() : at::Tensor()};
}

TEST(PpoLoss, AndItsGradientsEqualAutogradsOfTheTextbookForm) {
  const PpoWeights w{.2f, .5f, .05f};
  for (const bool continuous : {false, true}) {
    const PpoBatch batch = some_rows(64, 5, continuous);
    const at::Tensor policy = test_numbers({64, 5}, 6), value = test_numbers({64}, 7);
    const at::Tensor deviation = continuous ? test_numbers({64, 5}, 8, .3f) : at::Tensor();
    const Found found = by_kernel(batch, policy, value, deviation, w),
                want = by_autograd(batch, policy, value, deviation, w);
    EXPECT_TRUE(at::allclose(found.loss.to(at::kDouble), want.loss, 1e-5, 2e-6)) << continuous;
    EXPECT_TRUE(at::allclose(found.d_policy.to(at::kDouble), want.d_policy, 1e-5, 2e-6)) << continuous;
    EXPECT_TRUE(at::allclose(found.d_value.to(at::kDouble), want.d_value, 1e-5, 1e-6)) << continuous;
    if (continuous) {
      EXPECT_TRUE(at::allclose(found.d_deviation.to(at::kDouble), want.d_deviation, 1e-5, 5e-6));
    }
    EXPECT_EQ(found.d_policy[1].abs().sum().item<float>(), 0) << "an idle step teaches nothing";
  }
}

// ---- windows ----

// Tells its own steps: the observation of step k of episode m is m + k / 100. The table is 100, 101, ...
class Diary : public Environment {
 public:
  struct State {
    int32_t episode, step;
  };
  static constexpr int32_t kLength = 5;
  Diary() {
    for (int i = 0; i < 50; ++i) rows_.push_back(100.0f + static_cast<float>(i));
  }
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLength; }
  ObservationTable table() const override { return {rows_.data(), 1, 50}; }
  void table_rows(const std::byte* states, int32_t* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = 10 + at(states, i).step;
  }
  void observe_before(float* out) const override { *out = -1; }
  void reset(std::byte* states, int64_t n, const RandomKey&, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone) {
        State& s = reinterpret_cast<State*>(states)[i];
        s = {only_ended ? s.episode + 1 : 0, 0};
      }
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = number(at(states, i));
  }
  void step(std::byte* states, const int32_t*, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      ++s.step;
      out[i] = {.reward = 1, .end = s.step == kLength ? End::kTruncated : End::kNone};
    }
  }
  static float number(const State& s) { return static_cast<float>(s.episode) + static_cast<float>(s.step) / 100; }

 private:
  static const State& at(const std::byte* states, int64_t i) { return reinterpret_cast<const State*>(states)[i]; }
  std::vector<float> rows_;
};

PpoSettings small_ppo() {
  PpoSettings s;
  s.shards = 4;
  s.environments = 2;
  s.horizon = 16;
  s.batch_size = 32;
  s.update_epochs = 4;
  s.net.hidden = {16};
  s.optimizer.learning_rate = 3e-3;
  s.seed = 3;
  return s;
}

std::unique_ptr<TrainLoop> ppo_loop(const PpoSettings& s, std::unique_ptr<Environment> environment,
                                    const std::vector<double>& workers = {1}) {
  set_determinism();
  s.check();
  return std::make_unique<TrainLoop>(s, std::make_unique<Ppo>(s, std::move(environment)),
                                     ShardPlan::balance(static_cast<int>(s.shards), workers));
}

at::Tensor field_of(TrainLoop& loop, const std::string& name, int shard = 0) {
  for (const NamedTensor& t : loop.state().shard_state(shard))
    if (t.name.find(name) != std::string::npos) return t.tensor;
  throw std::logic_error("no field " + name);
}

TEST(PpoWindow, IsTheTrueHistoryOfItsEpisode) {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 8;
  s.net.heads = 2;
  s.net.layers = 1;
  s.window = 4;
  const auto loop = ppo_loop(s, std::make_unique<Diary>());
  for (int64_t i = 0; i < s.updates_per_rollout() + 1; ++i) loop->step();  // into the second rollout
  const auto& ppo = dynamic_cast<const Ppo&>(loop->recipe());
  const RolloutShape& shape = ppo.shape();
  const at::Tensor own = field_of(*loop, "own"), row = field_of(*loop, "row"), age = field_of(*loop, "age"),
                   weight = field_of(*loop, "weight"), table = at::arange(100, 150, at::kFloat);
  const float before = -1;
  Rollout rollout{.own = own.data_ptr<float>(), .row = row.data_ptr<int32_t>(), .age = age.data_ptr<int32_t>()};
  at::Tensor seen = at::empty({shape.environments, 4, 2}), number = at::empty({shape.environments}, at::kLong);
  const WindowSource source{table.data_ptr<float>(), &before};
  for (int64_t t = 0; t < s.horizon; ++t) {
    PpoKernels::cpu().windows(rollout, shape, source, t, 1, seen.data_ptr<float>(), number.data_ptr<int64_t>(),
                              nullptr);
    // The first rollout had 16 steps: episodes take 5 and an idle one; the idle step shows the last observation.
    const int64_t all = s.horizon + t, episode = all / 6, step = all % 6;
    EXPECT_EQ(weight[0][t].item<float>(), step == 5 ? 0 : 1);
    EXPECT_EQ(number[0].item<int64_t>(), shape.rows() + t);
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t then = step - (3 - k);
      EXPECT_EQ(seen[0][k][0].item<float>(), static_cast<float>(110 + then)) << t << " " << k;
      EXPECT_EQ(seen[0][k][1].item<float>(),
                then < 0 ? -1 : Diary::number({static_cast<int32_t>(episode), static_cast<int32_t>(then)}));
    }
  }
}

// ---- the recurrent net ----

// The guide's net from its formulas, in double, with the weights of `net`.
struct PlainClstm {
  std::map<std::string, at::Tensor> weights;
  int64_t heads;
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return at::matmul(x, weights.at(name + ".weight").t()) + weights.at(name + ".bias");
  }
  at::Tensor mlp(const std::string& name, at::Tensor x) const {
    for (int i = 0; weights.contains(fmt::format("{}.{}.weight", name, i)); i += 2)
      x = linear(fmt::format("{}.{}", name, i), i > 0 ? x.relu() : x);
    return x;
  }
  at::Tensor lstm(const std::string& name, const at::Tensor& x) const {  // [rows, window, width]
    at::Tensor h = at::zeros({x.size(0), x.size(2)}, at::kDouble), c = h;
    std::vector<at::Tensor> out;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const at::Tensor gates = at::matmul(x.select(1, t), weights.at(name + ".weight_ih_l0").t()) +
                               weights.at(name + ".bias_ih_l0") + at::matmul(h, weights.at(name + ".weight_hh_l0").t()) +
                               weights.at(name + ".bias_hh_l0");
      const auto g = gates.chunk(4, 1);
      c = g[1].sigmoid() * c + g[0].sigmoid() * g[2].tanh();
      h = g[3].sigmoid() * c.tanh();
      out.push_back(h);
    }
    return at::stack(out, 1);
  }
  at::Tensor attention(const std::string& name, const at::Tensor& x) const {
    const at::Tensor qkv = at::matmul(x, weights.at(name + ".in_proj_weight").t()) + weights.at(name + ".in_proj_bias");
    const auto part = qkv.chunk(3, 2);
    const auto by_head = [&](const at::Tensor& y) {
      return y.view({y.size(0), y.size(1), heads, y.size(2) / heads}).transpose(1, 2);
    };
    const at::Tensor q = by_head(part[0].contiguous()), k = by_head(part[1].contiguous()),
                     v = by_head(part[2].contiguous());
    const at::Tensor mixed = at::matmul(
        (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)))).softmax(-1), v);
    return linear(name + ".out_proj", mixed.transpose(1, 2).reshape_as(x));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& seen, int layers) const {
    at::Tensor x = linear("input", seen.to(at::kDouble));
    for (int i = 0; i < layers; ++i) {
      const at::Tensor carried = lstm(fmt::format("lstm{}", i), x);
      const std::string norm = fmt::format("norm{}", i);
      x = at::layer_norm(carried + attention(fmt::format("attention{}", i), carried), {x.size(2)},
                         weights.at(norm + ".weight"), weights.at(norm + ".bias"));
    }
    const at::Tensor last = mlp("trunk", x.select(1, x.size(1) - 1)).relu();
    return {mlp("policy", last), mlp("value", last).squeeze(1)};
  }
};

TEST(PolicyNet, OfLstmAndAttentionEqualsItsFormulas) {
  PpoSettings s;
  s.net.kind = "clstm";
  s.net.width = 32;
  s.net.heads = 4;
  s.net.layers = 3;
  s.net.head_hidden = {24, 16};
  s.window = 7;
  const auto net = make_policy_net(s, {.window = 7, .width = 12, .outputs = 5});
  PlainClstm plain{.heads = 4};
  uint32_t site = 1;
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : net->named_parameters()) {
      parameter.value().copy_(test_numbers(parameter.value().sizes(), ++site, .2f));
      plain.weights[parameter.key()] = parameter.value().to(at::kDouble);
    }
  }
  const at::Tensor seen = test_numbers({9, 7, 12}, 1);
  const PolicyOutput out = net->forward(seen, at::arange(9), std::nullopt);
  const auto [policy, value] = plain.forward(seen, 3);
  EXPECT_TRUE(at::allclose(out.policy.to(at::kDouble), policy, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(out.value.to(at::kDouble), value, 1e-5, 1e-6));
  EXPECT_GT(policy.std().item<double>(), 1e-3);
}

TEST(PolicyNet, GivesImpossibleActionsNoProbability) {
  PpoSettings s;
  s.net.hidden = {8};
  const ActionRule always, above{1, 0.5f, 10}, below{0, -10, 0};
  const auto net = make_policy_net(s, {.width = 3, .outputs = 3, .rules = {always, above, below}, .own = 2});
  const at::Tensor seen = at::tensor({9.f, -1.f, 1.f, /**/ 9.f, 1.f, 0.f, /**/ 9.f, -1.f, 0.f}).view({3, 1, 3});
  const at::Tensor policy = net->forward(seen, at::arange(3), std::nullopt).policy;
  const std::vector<std::vector<bool>> possible{{true, true, true}, {true, false, false}, {true, false, true}};
  for (int row = 0; row < 3; ++row)
    for (int action = 0; action < 3; ++action)
      EXPECT_EQ(policy[row][action].item<float>() != kImpossibleLogit, possible[row][action]) << row << " " << action;
  const float* const second = policy.data_ptr<float>() + 3;
  const RowLogSum sum = policy_log_sum(second, 3);
  for (const float uniform : {0.0f, 0.5f, 0.999999f, 1.0f}) EXPECT_EQ(sampled_action(second, 3, sum, uniform), 0);
  EXPECT_NEAR(log_probability(sum, second[0]), 0, 1e-6);
}

// ---- the learner ----

// Step right to the end: reward 1 and over. Every step costs 0.01. After kLimit steps an episode is truncated.
class Hallway : public Environment {
 public:
  struct State {
    int32_t cell, time;
  };
  static constexpr int32_t kCells = 5, kLimit = 20;
  explicit Hallway(bool continuous) : continuous_(continuous) {}
  int64_t observation_size() const override { return kCells; }
  int64_t actions() const override { return continuous_ ? 0 : 2; }
  int64_t action_size() const override { return continuous_ ? 1 : 0; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLimit; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {
            static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), kCells - 1)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)
      for (int32_t c = 0; c < kCells; ++c)
        out[i * kCells + c] = reinterpret_cast<const State*>(states)[i].cell == c ? 1.0f : 0.0f;
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = move(reinterpret_cast<State*>(states)[i], actions[i] == 1);
  }
  void step_continuous(std::byte* states, const float* actions, Outcome* out, int64_t n,
                       const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = move(reinterpret_cast<State*>(states)[i], actions[i] > 0.5f);
  }
  static Outcome move(State& s, bool right) {
    s.cell = std::max(0, s.cell + (right ? 1 : -1));
    const bool there = s.cell == kCells - 1;
    return {.reward = there ? 1.0f : -0.01f,
            .end = there                ? End::kTerminated
                   : ++s.time == kLimit ? End::kTruncated
                                        : End::kNone};
  }

 private:
  bool continuous_;
};

double metric_of(const StepRecord& record, const std::string& name) {
  for (const auto& [key, value] : record.metrics)
    if (key == name) return value;
  return NAN;
}

TEST(Ppo, LearnsTheHallwayWithBothKindsOfActions) {
  for (const bool continuous : {false, true}) {
    PpoSettings s = small_ppo();
    s.optimizer.learning_rate = 1e-2;
    const auto loop = ppo_loop(s, std::make_unique<Hallway>(continuous));
    StepRecord record;
    while (loop->steps_done() < 40 * s.updates_per_rollout()) record = loop->step();
    EXPECT_GT(metric_of(record, "average_return"), 0.93) << continuous;
    EXPECT_LT(metric_of(record, "episode_length"), 5) << continuous;
  }
}

TEST(Ppo, BeginsEachRolloutWithRatioOne) {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 8;
  s.net.heads = 2;
  s.net.layers = 2;
  s.net.dropout = 0.3;
  s.window = 3;
  s.optimizer.learning_rate = 1e-2;
  const auto loop = ppo_loop(s, std::make_unique<Hallway>(false));
  for (int64_t step = 0; step < 3 * s.updates_per_rollout(); ++step) {
    const StepRecord record = loop->step();
    if (step % s.updates_per_rollout() == 0) {
      EXPECT_LT(metric_of(record, "kl"), 1e-9) << "dropout draws the masks that were drawn when the steps were played";
      EXPECT_EQ(metric_of(record, "clipped"), 0);
    } else if (step % s.updates_per_rollout() > 4) {
      EXPECT_GT(metric_of(record, "kl"), 1e-9);
    }
  }
}

std::string digest_of_ppo(PpoSettings s, bool continuous, int steps, const std::vector<double>& workers) {
  const auto loop = ppo_loop(s, std::make_unique<Hallway>(continuous), workers);
  while (loop->steps_done() < steps) loop->step();
  return digest_of(*loop);
}

TEST(Ppo, HasOneDigestForEveryPlanAndPass) {
  using Change = std::function<void(PpoSettings&)>;
  for (const Change& change : std::vector<Change>{[](PpoSettings&) {}, [](PpoSettings& s) { s.accumulation = 2; },
                                                  [](PpoSettings& s) { s.precision = "bf16"; },
                                                  [](PpoSettings& s) {
                                                    s.net.kind = "clstm";
                                                    s.net.width = 8;
                                                    s.net.heads = 2;
                                                    s.net.layers = 2;
                                                    s.window = 3;
                                                  }})
    for (const bool continuous : {false, true}) {
      PpoSettings s = small_ppo();
      change(s);
      const int steps = static_cast<int>(2 * s.updates_per_rollout() + 3);
      const std::string one = digest_of_ppo(s, continuous, steps, {1});
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1, 1}), one);
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {2, 1, 1}), one);
      s.shards_per_pass = 1;
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1}), one);
      s.shards_per_pass = 3;
      EXPECT_EQ(digest_of_ppo(s, continuous, steps, {1}), one);
    }
}

// ---- pre-training ----

// A table that goes round in 12 days; the next day's number is to be forecast. Actions do nothing.
class Seasons : public Environment {
 public:
  struct State {
    int32_t row, time;
  };
  static constexpr int32_t kRows = 120, kLength = 30;
  Seasons() {
    for (int i = 0; i < kRows; ++i) {
      const double angle = 2 * M_PI * i / 12;
      for (const double x : {std::cos(angle), std::sin(angle)}) rows_.push_back(static_cast<float>(x));
      next_.push_back(static_cast<float>(std::sin(2 * M_PI * (i + 1) / 12)));
    }
  }
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kLength; }
  ObservationTable table() const override { return {rows_.data(), 2, kRows}; }
  ObservationTable forecast_targets() const override { return {next_.data(), 1, kRows}; }
  void table_rows(const std::byte* states, int32_t* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) out[i] = reinterpret_cast<const State*>(states)[i].row;
  }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {
            static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), kRows - kLength)), 0};
  }
  void observe(const std::byte*, float* out, int64_t n) const override { std::fill(out, out + n, 0.0f); }
  void step(std::byte* states, const int32_t*, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      ++s.row;
      out[i] = {.reward = 1, .end = ++s.time == kLength ? End::kTruncated : End::kNone};
    }
  }

 private:
  std::vector<float> rows_, next_;
};

PpoSettings pretrained_ppo() {
  PpoSettings s = small_ppo();
  s.net.kind = "clstm";
  s.net.width = 16;
  s.net.heads = 2;
  s.net.layers = 2;
  s.net.dropout = 0;
  s.window = 3;
  s.optimizer.learning_rate = 1e-2;
  s.pretrain_iterations = 12;
  return s;
}

at::Tensor weight_of(TrainLoop& loop, const std::string& name) {
  for (const NamedTensor& t : loop.state().model_tensors())
    if (t.name == name) return t.tensor.clone();
  throw std::logic_error("no weight " + name);
}

TEST(PpoPretraining, LearnsToForecastAndLeavesPolicyAndValueAlone) {
  const PpoSettings s = pretrained_ppo();
  const auto loop = ppo_loop(s, std::make_unique<Seasons>());
  const at::Tensor policy = weight_of(*loop, "policy.0.weight"), value = weight_of(*loop, "value.0.weight"),
                   lstm = weight_of(*loop, "lstm0.weight_ih_l0");
  const double first = metric_of(loop->step(), "forecast_loss");
  StepRecord record;
  while (loop->steps_done() < s.pretrain_updates()) record = loop->step();
  EXPECT_LT(metric_of(record, "forecast_loss"), first / 20);
  EXPECT_TRUE(at::equal(weight_of(*loop, "policy.0.weight"), policy));
  EXPECT_TRUE(at::equal(weight_of(*loop, "value.0.weight"), value));
  EXPECT_FALSE(at::equal(weight_of(*loop, "lstm0.weight_ih_l0"), lstm));
  const at::Tensor forecast = weight_of(*loop, "forecast0.weight");
  record = loop->step();  // PPO from here on
  EXPECT_TRUE(std::isnan(metric_of(record, "forecast_loss")));
  EXPECT_FALSE(at::equal(weight_of(*loop, "value.0.weight"), value));
}

TEST(PpoPretraining, HasOneDigestForEveryPlanAndPass) {
  PpoSettings s = pretrained_ppo();
  s.pretrain_iterations = 1;
  const auto digest = [&](const std::vector<double>& workers) {
    const auto loop = ppo_loop(s, std::make_unique<Seasons>(), workers);
    while (loop->steps_done() < s.pretrain_updates() + 5) loop->step();
    return digest_of(*loop);
  };
  const std::string one = digest({1});
  EXPECT_EQ(digest({2, 1}), one);
  s.shards_per_pass = 1;
  EXPECT_EQ(digest({1}), one);
}

TEST(PpoPretraining, IsRefusedWhereThereIsNothingToForecast) {
  PpoSettings s = pretrained_ppo();
  EXPECT_THROW(ppo_loop(s, std::make_unique<Hallway>(false)), ConfigError);
  s.net.kind = "mlp";
  s.window = 1;
  EXPECT_THROW(s.check(), ConfigError);
}

// ---- memory ----

// The first observation tells which of two actions will be right, five steps later; those between tell nothing.
class Recall : public Environment {
 public:
  struct State {
    int32_t sign, time;
  };
  static constexpr int32_t kDelay = 5;
  int64_t observation_size() const override { return 2; }
  int64_t actions() const override { return 2; }
  int64_t state_bytes() const override { return sizeof(State); }
  int64_t max_episode_steps() const override { return kDelay + 1; }
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override {
    for (int64_t i = 0; i < n; ++i)
      if (!only_ended || only_ended[i].end != End::kNone)
        reinterpret_cast<State*>(states)[i] = {static_cast<int32_t>(random_below(key, static_cast<uint64_t>(i), 2)), 0};
  }
  void observe(const std::byte* states, float* out, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) {
      const State& s = reinterpret_cast<const State*>(states)[i];
      out[2 * i] = s.time == 0 ? (s.sign ? 1.0f : -1.0f) : 0.0f;
      out[2 * i + 1] = s.time == kDelay ? 1.0f : 0.0f;
    }
  }
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey&) const override {
    for (int64_t i = 0; i < n; ++i) {
      State& s = reinterpret_cast<State*>(states)[i];
      const bool asked = s.time++ == kDelay;
      out[i] = {.reward = asked ? (actions[i] == s.sign ? 1.0f : -1.0f) : 0.0f,
                .end = asked ? End::kTerminated : End::kNone};
    }
  }
};

// Whoever forgets gets 0 on average, whatever it does.
double return_of_recall(int64_t window, int64_t iterations) {
  PpoSettings s = small_ppo();
  s.environments = 16;
  s.horizon = 12;
  s.batch_size = 192;
  s.net.kind = "clstm";
  s.net.width = 16;
  s.net.heads = 2;
  s.net.layers = 1;
  s.net.dropout = 0;
  s.window = window;
  s.gamma = 0.9;
  s.entropy_weight = 0;
  s.optimizer.learning_rate = 3e-3;
  const auto loop = ppo_loop(s, std::make_unique<Recall>());
  StepRecord record;
  while (loop->steps_done() < iterations * s.updates_per_rollout()) record = loop->step();
  return metric_of(record, "average_return");
}

TEST(PpoMemory, SolvesWhatNoMemorylessPolicyCan) {
  EXPECT_GT(return_of_recall(Recall::kDelay + 1, 70), 0.95);
  EXPECT_LT(return_of_recall(Recall::kDelay, 30), 0.3) << "a window that is a step too short sees nothing";
}

TEST(Ppo, RefusesARolloutThatDoesNotDivideIntoBatches) {
  PpoSettings s = small_ppo();
  s.batch_size = 48;
  EXPECT_THROW(s.check(), ConfigError);
}

}  // namespace
}  // namespace tandem
