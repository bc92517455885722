#include "rl/dqn/dueling_net.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "nn/init.h"
#include "rl/dqn/dueling_cpu.h"

namespace tandem {
namespace {

DuelingNet make(int64_t states, int64_t actions, const NetSettings& settings) {
  DuelingNet net(states, actions, settings);
  init_weights(*net, 5);
  return net;
}

at::Tensor numbers(at::IntArrayRef sizes) {  // any fixed ones
  return at::sin(at::arange(c10::multiply_integers(sizes), at::kFloat) * 1.7f).view(sizes);
}

TEST(DuelingNet, ValuesAreThoseOfTheDirectFormula) {
  NetSettings settings{.hidden = {12, 8}, .head = 4};
  DuelingNet net = make(6, 3, settings);
  const auto weights = net->named_parameters();
  const auto linear = [&](const std::string& name, const at::Tensor& x) {
    return (x.unsqueeze(1) * weights[name + ".weight"].to(at::kDouble)).sum(2) +
           weights[name + ".bias"].to(at::kDouble);
  };
  const at::Tensor states = numbers({5, 6});
  at::Tensor x = states.to(at::kDouble);
  for (const char* layer : {"1", "2"}) {
    x = linear(std::string("hidden") + layer, x);
    const at::Tensor centred = x - x.mean(1, true);
    x = (centred / (centred.square().mean(1, true) + 1e-5).sqrt()).clamp_min(0);  // norm weights are 1 and 0 at first
  }
  const at::Tensor both = linear("heads", x).clamp_min(0);
  const at::Tensor value = linear("value", both.slice(1, 0, 4)), advantage = linear("advantage", both.slice(1, 4, 8));
  const at::Tensor want = value + advantage - advantage.sum(1, true) / 3;
  EXPECT_TRUE(at::allclose(net->forward(states).to(at::kDouble), want, 1e-5, 1e-6));
}

TEST(DuelingNet, TheMeanOverActionsIsTheValue) {
  DuelingNet net = make(6, 3, {.hidden = {12, 8}, .head = 4});
  {
    torch::NoGradGuard no_grad;
    net->named_parameters()["value.weight"].zero_();
    net->named_parameters()["value.bias"].fill_(2.5);
  }
  EXPECT_TRUE(at::allclose(net->forward(numbers({4, 6})).mean(1), at::full({4}, 2.5), 0, 1e-5));
}

TEST(DuelingNet, AttentionIsTheFormulaAndLooksAtNoOtherRow) {
  const NetSettings settings{.hidden = {16}, .head = 4, .attention = true, .tokens = 4, .attention_heads = 2};
  DuelingNet net = make(6, 3, settings);
  const at::Tensor states = numbers({5, 6});
  const at::Tensor batched = net->forward(states);
  for (int64_t row = 0; row < 5; ++row)
    EXPECT_TRUE(at::allclose(net->forward(states.narrow(0, row, 1))[0], batched[row], 1e-5, 1e-6));
  // The formula: hidden features, then heads of two numbers over four tokens of four.
  auto w = net->named_parameters();
  at::Tensor x = at::relu(at::layer_norm(at::linear(states, w["hidden1.weight"], w["hidden1.bias"]), {16}));
  const at::Tensor tokens = x.view({5, 4, 4});
  const at::Tensor qkv = at::linear(tokens, w["query_key_value.weight"], w["query_key_value.bias"]);
  at::Tensor mixed = at::zeros({5, 4, 4});
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t head = 0; head < 2; ++head) {
      const at::Tensor q = qkv[b].slice(1, head * 2, head * 2 + 2), k = qkv[b].slice(1, 4 + head * 2, 6 + head * 2),
                       v = qkv[b].slice(1, 8 + head * 2, 10 + head * 2);
      mixed[b].slice(1, head * 2, head * 2 + 2).copy_(at::softmax(q.matmul(k.t()) / std::sqrt(2.0), 1).matmul(v));
    }
  x = at::layer_norm(tokens + at::linear(mixed, w["attended.weight"], w["attended.bias"]), {4}).reshape({5, 16});
  const at::Tensor both = at::relu(at::linear(x, w["heads.weight"], w["heads.bias"]));
  const at::Tensor advantage = at::linear(both.slice(1, 4, 8), w["advantage.weight"], w["advantage.bias"]);
  const at::Tensor want =
      at::linear(both.slice(1, 0, 4), w["value.weight"], w["value.bias"]) + advantage - advantage.mean(1, true);
  EXPECT_TRUE(at::allclose(batched, want, 1e-4, 1e-5));
}

TEST(DuelingCpu, LossErrorsAndGradientsAreThoseOfTensors) {
  for (double p : {0.0, 0.3})
    for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{40, 24}, {17}, {20, 33, 16}}) {
      const NetSettings settings{.hidden = hidden, .head = 12, .dropout = p};
      DuelingNet net = make(6, 3, settings), target = make(6, 3, settings);
      {
        torch::NoGradGuard no_grad;
        for (at::Tensor& w : target->parameters()) w.mul_(1.1);
        for (auto& w : net->named_parameters())
          if (w.key().starts_with("norm")) w.value().add_(numbers(w.value().sizes()), 0.2);
      }
      constexpr int64_t kRows = 9;
      const at::Tensor before = numbers({kRows, 6}), after = numbers({kRows, 6}) * 0.7, reward = numbers({kRows}) * 2,
                       discount = numbers({kRows}).abs(), weight = numbers({kRows}).abs() + 0.1;
      const at::Tensor action = at::arange(kRows) % 3;
      std::vector<RandomSource> masks;
      for (uint32_t l = 0; l < hidden.size(); ++l) masks.push_back(RandomKey{1, 2, 3, l});

      at::Tensor goal;
      {
        at::NoGradGuard no_grad;
        const at::Tensor chosen = net->forward(after).argmax(1, true);
        goal = reward + discount * target->forward(after).gather(1, chosen).squeeze(1);
      }
      const at::Tensor q = net->forward(before, &masks).gather(1, action.unsqueeze(1)).squeeze(1);
      const at::Tensor loss = (at::huber_loss(q, goal, at::Reduction::None) * weight).sum() * 0.25;
      for (at::Tensor& w : net->parameters()) w.mutable_grad() = at::zeros_like(w);
      (loss * 3).backward();
      std::vector<at::Tensor> want;
      for (at::Tensor& w : net->parameters()) {
        want.push_back(w.grad().clone());
        w.mutable_grad().zero_();
      }

      DuelingCpu cpu_net(net.ptr(), target.ptr(), settings, kRows);
      const DuelingCpu::Result result = cpu_net.learn({before, after, reward, discount, action, weight}, masks, 0.25);
      EXPECT_NEAR(result.loss.item<float>(), loss.item<float>(), 1e-5);
      EXPECT_NEAR(result.q_sum, q.sum().item<float>(), 1e-4);
      EXPECT_TRUE(at::allclose(result.td_errors, (q - goal).abs(), 1e-4, 1e-5));
      (result.loss * 3).backward();
      const auto named = net->named_parameters();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(at::allclose(named[i].value().grad(), want[i], 1e-3, 1e-5)) << named[i].key();
      EXPECT_TRUE(at::allclose(cpu_net.q_values(after), net->forward(after), 1e-4, 1e-5));
    }
}

TEST(DuelingNet, DropoutIsOnOnlyWithItsStreams) {
  DuelingNet net = make(6, 3, {.hidden = {64, 64}, .head = 4, .dropout = 0.5});
  const at::Tensor states = numbers({4, 6});
  const std::vector<RandomSource> masks{RandomKey{1, 2, 3, 4}, RandomKey{1, 2, 3, 5}};
  EXPECT_TRUE(net->forward(states).equal(net->forward(states)));
  EXPECT_TRUE(net->forward(states, &masks).equal(net->forward(states, &masks)));
  EXPECT_FALSE(net->forward(states, &masks).equal(net->forward(states)));
}

}  // namespace
}  // namespace tandem
