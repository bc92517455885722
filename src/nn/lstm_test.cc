#include "nn/lstm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "nn/init.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

struct LstmCase {
  int64_t in, hidden, rows, steps;
};
// Small ones go through the project's GEMM, large ones through libtorch's; odd sizes begin shards at odd addresses.
const std::vector<LstmCase> kLstmCases{
    {5, 3, 2, 4},     {1, 1, 1, 1},    {8, 16, 3, 1},   {16, 8, 1, 6},    {33, 40, 4, 5},
    {160, 64, 3, 20}, {20, 300, 2, 3}, {40, 512, 2, 3}, {24, 16, 27, 20},
};

Lstm made_lstm(const LstmCase& c) {
  Lstm layer(c.in, c.hidden);
  init_weights(*layer, 17);
  return layer;
}
std::vector<at::Tensor> lstm_parameters(Lstm layer) {
  return {layer->weight_ih, layer->weight_hh, layer->bias_ih, layer->bias_hh};
}
at::Tensor lstm_input(const LstmCase& c, int shards = 1) { return test_numbers({shards * c.rows, c.steps, c.in}, 1); }
at::Tensor lstm_output_grad(const LstmCase& c, int shards = 1) {
  return test_numbers({shards * c.rows, c.steps, c.hidden}, 2);
}

// Forward and backward of the rows of so many shards in one pass: output and gradient of x; the parameters' leaves.
PassResults run_lstm(Lstm layer, const at::Tensor& x, const at::Tensor& dy, int shards, bool autocast = false) {
  TestPass pass(*layer, shards);
  layer->pass().job_shards = 5;
  at::Tensor input = x.detach().clone().requires_grad_();
  at::Tensor y;
  if (autocast) {
    const TestAutocast on;
    y = layer->forward(input);
  } else {
    y = layer->forward(input);
  }
  y.backward(dy.to(y.scalar_type()));
  EXPECT_TRUE(pass.sums.all_came());
  PassResults results{{y.detach(), input.grad()}, {}};
  for (const at::Tensor& parameter : lstm_parameters(layer)) {
    EXPECT_FALSE(parameter.grad().defined());
    results.leaves.push_back(pass.sums.leaves(parameter));
  }
  return results;
}

double worst_of(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor a = ours.to(at::kFloat).flatten(), b = theirs.flatten();
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-6)).item<double>();
}

double mean_error_of(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor a = ours.to(at::kFloat).flatten(), b = theirs.flatten();
  return ((a - b).norm() / b.norm().clamp_min(1e-6)).item<double>();
}

// torch's own, with the same weights: output, gradient of x, gradients of the parameters.
std::vector<at::Tensor> torchs_lstm(Lstm layer, const at::Tensor& x, const at::Tensor& dy) {
  torch::nn::LSTM torchs(torch::nn::LSTMOptions(layer->options.in, layer->options.hidden).batch_first(true));
  {
    const at::NoGradGuard no_grad;
    for (auto& item : torchs->named_parameters()) item.value().copy_(layer->named_parameters()[item.key()]);
  }
  const at::Tensor input = x.detach().clone().requires_grad_();
  const at::Tensor y = std::get<0>(torchs(input));
  y.backward(dy);
  std::vector<at::Tensor> all{y.detach(), input.grad()};
  for (const at::Tensor& parameter : torchs->parameters()) all.push_back(parameter.grad());
  return all;
}

TEST(Lstm, IsTorchsLstmWithinRounding) {
  for (const LstmCase& c : kLstmCases)
    for (const bool autocast : {false, true}) {
      Lstm layer = made_lstm(c);
      const at::Tensor x = lstm_input(c, 2), dy = lstm_output_grad(c, 2);
      const PassResults ours = run_lstm(layer, x, dy, 2, autocast);
      for (int shard = 0; shard < 2; ++shard) {
        const auto theirs = torchs_lstm(layer, shards_of(x, 2, shard, 1), shards_of(dy, 2, shard, 1));
        for (size_t i = 0; i < 6; ++i) {
          const at::Tensor mine = i < 2 ? shards_of(ours.rows[i], 2, shard, 1) : ours.leaves[i - 2][shard];
          if (autocast)
            EXPECT_LT(mean_error_of(mine, theirs[i]), c.hidden == 1 ? 0.05 : 0.015)  // four terms that cancel
                << i << ", " << c.in << " " << c.hidden;
          else
            EXPECT_LT(worst_of(mine, theirs[i]), 1e-5) << i << ", " << c.in << " " << c.hidden;
        }
      }
    }
}

TEST(Lstm, ABatchOfShardsHasTheBitsOfEachShardAlone) {
  for (const LstmCase& c : kLstmCases)
    for (const bool autocast : {false, true})
      for (const int shards : {1, 2, 3, 5}) {
        Lstm layer = made_lstm(c);
        const at::Tensor x = lstm_input(c, shards), dy = lstm_output_grad(c, shards);
        const auto run = [&](int first, int count) {
          return run_lstm(layer, shards_of(x, shards, first, count), shards_of(dy, shards, first, count), count,
                          autocast);
        };
        EXPECT_TRUE(same_in_any_pass(shards, run)) << c.in << " " << c.hidden << " " << shards << " " << autocast;
        const PassResults batched = run(0, shards);
        layer->use_one_by_one();
        EXPECT_TRUE(same_bits(batched, run(0, shards))) << c.in << " " << c.hidden << " " << shards << " one by one";
      }
}

TEST(Lstm, UnderAutocastItGivesItsTypeAndFloatLeaves) {
  const LstmCase c{16, 8, 2, 3};
  const PassResults run = run_lstm(made_lstm(c), lstm_input(c, 2), lstm_output_grad(c, 2), 2, true);
  EXPECT_EQ(run.rows[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(run.rows[1].scalar_type(), at::kFloat);
  for (const at::Tensor& leaves : run.leaves) {
    EXPECT_EQ(leaves.scalar_type(), at::kFloat);
    EXPECT_EQ(leaves.size(0), 2);
  }
}

TEST(Lstm, WithoutAnEngineAutogradGivesTheSameGradients) {
  for (const LstmCase& c : kLstmCases) {
    Lstm layer = made_lstm(c), bound = made_lstm(c);
    const at::Tensor x = lstm_input(c), dy = lstm_output_grad(c), input = x.clone().requires_grad_();
    const at::Tensor y = layer->forward(input);
    y.backward(dy);
    PassResults ours{{y.detach(), input.grad()}, {}};
    for (const at::Tensor& parameter : lstm_parameters(layer)) ours.leaves.push_back(parameter.grad().view({1, -1}));
    EXPECT_TRUE(same_bits(ours, run_lstm(bound, x, dy, 1)));
  }
}

TEST(Lstm, StridedInputsAndGradientsHaveTheBitsOfContiguousOnes) {
  const LstmCase c{8, 6, 4, 3};
  Lstm layer = made_lstm(c);
  const at::Tensor wide = test_numbers({3, 4, 16}, 3), x = wide.transpose(0, 1).narrow(2, 3, 8);
  const at::Tensor dy = test_numbers({3, 4, 6}, 4).transpose(0, 1);
  EXPECT_TRUE(same_bits(run_lstm(layer, x, dy, 2), run_lstm(layer, x.contiguous(), dy.contiguous(), 2)));
}

TEST(Lstm, ALossOnTheLastStepReachesEveryStepOfTheInput) {
  const LstmCase c{8, 6, 4, 7};
  Lstm layer = made_lstm(c);
  at::Tensor dy = at::zeros({4, 7, 6});
  dy.select(1, 6).fill_(1);
  const PassResults ours = run_lstm(layer, lstm_input(c), dy, 1);
  EXPECT_GT(ours.rows[1].abs().amax({0, 2}).min().item<float>(), 0);
  EXPECT_LT(worst_of(ours.rows[1], torchs_lstm(layer, lstm_input(c), dy)[1]), 1e-5);
}

TEST(Lstm, FrozenParametersGetNoGradientAndTheOthersKeepTheirs) {
  const LstmCase c{8, 6, 4, 3};
  const PassResults all = run_lstm(made_lstm(c), lstm_input(c, 2), lstm_output_grad(c, 2), 2);
  for (size_t frozen = 0; frozen < 4; ++frozen) {
    Lstm layer = made_lstm(c);
    lstm_parameters(layer)[frozen].set_requires_grad(false);
    const PassResults run = run_lstm(layer, lstm_input(c, 2), lstm_output_grad(c, 2), 2);
    EXPECT_TRUE(same_bits(run.rows[1], all.rows[1]));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(run.leaves[i].defined(), i != frozen);
      if (i == frozen) continue;
      EXPECT_TRUE(same_bits(run.leaves[i], all.leaves[i]));
    }
  }
}

TEST(Lstm, WithoutGradientsItGivesTheSameStatesAndExpectsNothing) {
  for (const LstmCase& c : kLstmCases) {
    Lstm layer = made_lstm(c);
    const at::Tensor expected = run_lstm(layer, lstm_input(c), lstm_output_grad(c), 1).rows[0];
    TestPass pass(*layer, 1);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(same_bits(layer->forward(lstm_input(c)), expected));
    EXPECT_TRUE(pass.sums.all_came());
  }
}

TEST(Lstm, BackwardMayRunTwiceOverOneGraph) {
  const LstmCase c{8, 6, 4, 3};
  Lstm layer = made_lstm(c);
  const at::Tensor x = lstm_input(c).requires_grad_();
  const at::Tensor y = layer->forward(x), dy = lstm_output_grad(c);
  y.backward(dy, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  y.backward(dy);
  EXPECT_TRUE(at::equal(x.grad(), once + once));
}

TEST(Lstm, NoRowsGiveNoRowsAndLeavesOfZeros) {
  for (const LstmCase& c : kLstmCases) {
    const LstmCase none{c.in, c.hidden, 0, c.steps};
    const PassResults run = run_lstm(made_lstm(none), lstm_input(none), lstm_output_grad(none), 2);
    EXPECT_EQ(run.rows[0].sizes(), (std::vector<int64_t>{0, c.steps, c.hidden}));
    for (const at::Tensor& leaves : run.leaves) EXPECT_EQ(leaves.abs().sum().item<float>(), 0);
  }
}

TEST(Lstm, HasTorchsParametersAndFirstValues) {
  Lstm ours(5, 3);
  torch::nn::LSTM torchs(torch::nn::LSTMOptions(5, 3));
  init_weights(*ours, 9);
  init_weights(*torchs, 9);
  EXPECT_EQ(ours->named_parameters().keys(), torchs->named_parameters().keys());
  for (const auto& item : torchs->named_parameters())
    EXPECT_TRUE(same_bits(ours->named_parameters()[item.key()], item.value())) << item.key();
  InitRules rules;
  rules.kind("LSTM", "bias_*", init::constant(0.25));
  init_weights(*ours, rules, 9);
  init_weights(*torchs, rules, 9);
  for (const auto& item : torchs->named_parameters())
    EXPECT_TRUE(same_bits(ours->named_parameters()[item.key()], item.value())) << item.key();
}

TEST(Lstm, BadInputIsRefusedWithTheLayersName) {
  const auto refused = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  Lstm layer(8, 6);
  const auto context = std::make_shared<LayerContext>();
  context->shards = 3;
  layer->bind(context, "memory");
  EXPECT_EQ(refused([&] {
              layer->forward(at::zeros({6, 2, 7}));
            }),
            "memory (LSTM, 8 -> 6) was given an input of [6, 2, 7]");
  EXPECT_EQ(refused([&] { layer->forward(at::zeros({6, 8})); }), "memory (LSTM, 8 -> 6) was given an input of [6, 8]");
  EXPECT_EQ(refused([&] {
              layer->forward(at::zeros({6, 0, 8}));
            }),
            "memory (LSTM, 8 -> 6) was given an input of [6, 0, 8]");
  EXPECT_EQ(refused([&] { layer->forward(at::zeros({4, 2, 8})); }), "memory has 4 rows for 3 shards");
  EXPECT_EQ(refused([] { Lstm(0, 4); }), "an LSTM from 0 features to 4 hidden units");
}

}  // namespace
}  // namespace tandem
