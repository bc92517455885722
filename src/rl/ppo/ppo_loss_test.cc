// PPO's arithmetic beside plain references: advantages, the loss with its gradients, the recurrent net.
#include "rl/ppo/ppo_loss.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "nn/test_pass.h"
#include "rl/ppo/policy_net.h"

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
  advantages(reward.data(), 2, value.data(), end.data(), weight.data(), 8, gamma, lambda, advantage.data(),
             target.data());
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
                               weights.at(name + ".bias_ih_l0") +
                               at::matmul(h, weights.at(name + ".weight_hh_l0").t()) + weights.at(name + ".bias_hh_l0");
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
    const at::Tensor mixed =
        at::matmul((at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)))).softmax(-1), v);
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

}  // namespace
}  // namespace tandem
