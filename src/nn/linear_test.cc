#include "nn/linear.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "kernels/cpu/random_fill.h"
#include "nn/init.h"
#include "nn/linear_gemm.h"
#include "nn/stored_sums.h"
#include "nn/tie_weights.h"

namespace tandem {
namespace {

at::Tensor linear_numbers(std::vector<int64_t> sizes, uint32_t site) {
  at::Tensor values = at::empty(sizes);
  fill_normal(values.data_ptr<float>(), values.numel(), RandomKey{11, 1, 2, site});
  return values;
}

struct LinearCase {
  int64_t in, out, rows;
  bool bias = true;
  std::optional<GeluForm> gelu = std::nullopt;
};
// Small ones go through the project's GEMM, large ones through libtorch's; odd sizes begin shards at odd addresses.
const std::vector<LinearCase> kLinearCases{
    {8, 5, 3},
    {33, 64, 7, false},
    {16, 24, 70, true, GeluForm::kTanh},
    {24, 16, 5, true, GeluForm::kErf},
    {263, 260, 5},
    {523, 520, 5},
    {640, 513, 9, false},
    {601, 500, 6, true, GeluForm::kErf},
    {600, 501, 3, true, GeluForm::kTanh},
    {12, 12, 2, false, GeluForm::kTanh},
    {1500, 40, 6},
};

Linear made_linear(const LinearCase& c) {
  Linear layer(LinearOptions{.in = c.in, .out = c.out, .bias = c.bias, .gelu = c.gelu});
  init_weights(*layer, 17);
  return layer;
}

struct LinearRun {
  at::Tensor y, dx, weight, bias;  // the last two: leaves [shards, ...]
};

struct LinearPassOf {
  int shards = 1, job_shards = 1;
  bool one_by_one = false, autocast = false;
};

// Forward and backward of the rows of so many shards in one pass.
LinearRun run_linear(Linear& layer, const at::Tensor& x, const at::Tensor& dy, const LinearPassOf& how) {
  const auto context = std::make_shared<LayerContext>();
  StoredSums sums;
  context->shards = how.shards;
  context->job_shards = std::max(how.job_shards, how.shards);
  context->sums = &sums;
  layer->bind(context, "h.3.c_fc");
  if (how.one_by_one) layer->use_one_by_one();
  const at::Tensor input = x.detach().clone().requires_grad_();
  if (how.autocast) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  const at::Tensor y = layer(input);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  y.backward(dy.to(y.scalar_type()));
  EXPECT_TRUE(sums.all_came());
  EXPECT_FALSE(layer->weight.grad().defined());
  return {y.detach(), input.grad(), sums.leaves(layer->weight),
          layer->bias.defined() ? sums.leaves(layer->bias) : at::Tensor()};
}

bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.scalar_type() == b.scalar_type() && at::equal(a, b)));
}
at::Tensor shard_part(const at::Tensor& rows, int shard, int shards) {
  return rows.defined() ? rows.chunk(shards)[static_cast<size_t>(shard)] : rows;
}

at::Tensor torchs_gelu(const at::Tensor& z, std::optional<GeluForm> form) {
  return !form ? z : at::gelu(z, *form == GeluForm::kTanh ? "tanh" : "none");
}

TEST(Linear, ABatchOfShardsHasTheBitsOfEachShardAlone) {
  for (const LinearCase& c : kLinearCases)
    for (const bool autocast : {false, true})
      for (const int shards : {1, 2, 3, 5}) {
        Linear layer = made_linear(c);
        const at::Tensor x = linear_numbers({shards * c.rows, c.in}, 1),
                         dy = linear_numbers({shards * c.rows, c.out}, 2);
        const LinearRun batched = run_linear(layer, x, dy, {.shards = shards, .job_shards = 5, .autocast = autocast});
        const LinearRun one_by_one =
            run_linear(layer, x, dy, {.shards = shards, .one_by_one = true, .autocast = autocast});
        for (int shard = 0; shard < shards; ++shard) {
          const LinearRun alone = run_linear(layer, shard_part(x, shard, shards).clone(), shard_part(dy, shard, shards),
                                             {.shards = 1, .job_shards = 5, .autocast = autocast});
          for (const LinearRun* run : {&batched, &one_by_one}) {
            EXPECT_TRUE(same_numbers(shard_part(run->y, shard, shards), alone.y)) << c.in << " " << shards;
            EXPECT_TRUE(same_numbers(shard_part(run->dx, shard, shards), alone.dx)) << c.in << " " << shards;
            EXPECT_TRUE(same_numbers(shard_part(run->weight, shard, shards), alone.weight)) << c.in << " " << shards;
            EXPECT_TRUE(same_numbers(shard_part(run->bias, shard, shards), alone.bias)) << c.in << " " << shards;
          }
        }
      }
}

TEST(Linear, IsTorchsLinearWithinRounding) {
  for (const LinearCase& c : kLinearCases)
    for (const bool autocast : {false, true}) {
      Linear layer = made_linear(c);
      const at::Tensor x = linear_numbers({2 * c.rows, c.in}, 3), dy = linear_numbers({2 * c.rows, c.out}, 4);
      const LinearRun run = run_linear(layer, x, dy, {.shards = 2, .autocast = autocast});
      for (int shard = 0; shard < 2; ++shard) {
        torch::nn::Linear torchs(torch::nn::LinearOptions(c.in, c.out).bias(c.bias));
        {
          at::NoGradGuard no_grad;
          torchs->weight.copy_(layer->weight);
          if (c.bias) torchs->bias.copy_(layer->bias);
        }
        const at::Tensor input = shard_part(x, shard, 2).clone().requires_grad_();
        const at::Tensor y = torchs_gelu(torchs(input), c.gelu);
        y.backward(shard_part(dy, shard, 2));
        const double bound = autocast ? 0.03 : 1e-5;
        const auto close = [&](const at::Tensor& ours, const at::Tensor& theirs) {
          const at::Tensor a = ours.to(at::kFloat).flatten(), b = theirs.flatten();
          return ((a - b).abs().max() / b.abs().max()).item<double>() < bound;
        };
        EXPECT_TRUE(close(shard_part(run.y, shard, 2), y));
        EXPECT_TRUE(close(shard_part(run.dx, shard, 2), input.grad()));
        EXPECT_TRUE(close(run.weight[shard], torchs->weight.grad()));
        if (c.bias) {
          EXPECT_TRUE(close(run.bias[shard], torchs->bias.grad()));
        }
      }
    }
}

TEST(Linear, UnderAutocastItGivesItsTypeAndFloatLeaves) {
  Linear layer = made_linear({16, 8, 4, true, GeluForm::kTanh});
  const LinearRun run =
      run_linear(layer, linear_numbers({4, 16}, 1), linear_numbers({4, 8}, 2), {.shards = 2, .autocast = true});
  EXPECT_EQ(run.y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(run.dx.scalar_type(), at::kFloat);
  EXPECT_EQ(run.weight.scalar_type(), at::kFloat);
  EXPECT_EQ(run.weight.sizes(), (std::vector<int64_t>{2, 128}));
  EXPECT_EQ(run.bias.sizes(), (std::vector<int64_t>{2, 8}));
}

TEST(Linear, WithoutAnEngineAutogradGivesTheSameGradients) {
  for (const LinearCase& c : kLinearCases) {
    Linear layer = made_linear(c);
    const at::Tensor x = linear_numbers({2, c.rows, c.in}, 5), dy = linear_numbers({2, c.rows, c.out}, 6);
    const at::Tensor input = x.clone().requires_grad_();
    const at::Tensor y = layer(input);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, c.rows, c.out}));
    y.backward(dy);
    Linear bound = made_linear(c);
    const LinearRun run = run_linear(bound, x, dy, {});
    EXPECT_TRUE(same_numbers(run.y, y));
    EXPECT_TRUE(same_numbers(run.dx, input.grad()));
    EXPECT_TRUE(same_numbers(run.weight.view_as(layer->weight), layer->weight.grad()));
    if (c.bias) EXPECT_TRUE(same_numbers(run.bias.view_as(layer->bias), layer->bias.grad()));
  }
}

TEST(Linear, LeadingDimensionsAreRowsAndSlicesMayBeStrided) {
  Linear layer = made_linear({8, 6, 0, true, GeluForm::kErf});
  const at::Tensor wide = linear_numbers({4, 3, 16}, 7), x = wide.narrow(2, 3, 8), dy = linear_numbers({4, 3, 6}, 8);
  const LinearRun run = run_linear(layer, x, dy.transpose(0, 1).contiguous().transpose(0, 1), {.shards = 2});
  const LinearRun flat = run_linear(layer, x.reshape({12, 8}), dy.reshape({12, 6}), {.shards = 2});
  EXPECT_TRUE(same_numbers(run.y.flatten(0, 1), flat.y));
  EXPECT_TRUE(same_numbers(run.dx.flatten(0, 1), flat.dx));
  EXPECT_TRUE(same_numbers(run.weight, flat.weight));
}

TEST(Linear, FrozenParametersAndInputsGetNoGradient) {
  Linear layer = made_linear({8, 6, 0});
  layer->weight.set_requires_grad(false);
  const LinearRun run = run_linear(layer, linear_numbers({4, 8}, 1), linear_numbers({4, 6}, 2), {.shards = 2});
  EXPECT_FALSE(run.weight.defined());
  EXPECT_TRUE(run.bias.defined() && run.dx.defined());

  Linear first = made_linear({8, 6, 0});
  const auto context = std::make_shared<LayerContext>();
  StoredSums sums;
  context->shards = 2;
  context->sums = &sums;
  first->bind(context, "first");
  const at::Tensor x = linear_numbers({4, 8}, 1);
  first(x).sum().backward();
  EXPECT_TRUE(sums.all_came());
  EXPECT_FALSE(x.grad().defined());
  const at::NoGradGuard no_grad;
  first(x);
  EXPECT_TRUE(sums.all_came()) << "nothing is expected where no backward comes";
}

TEST(Linear, ATiedWeightGetsTheLeavesOfBothUses) {
  Linear one = made_linear({8, 8, 0}), two = made_linear({8, 8, 0});
  tie_weights(two, one);
  const auto context = std::make_shared<LayerContext>();
  StoredSums sums;
  context->shards = 2;
  context->sums = &sums;
  one->bind(context, "one");
  two->bind(context, "two");
  const at::Tensor x = linear_numbers({6, 8}, 1);
  two(one(x)).sum().backward();
  EXPECT_TRUE(sums.all_came());
  for (int shard = 0; shard < 2; ++shard) {
    const at::Tensor weight = one->weight.detach().clone().requires_grad_();
    const at::Tensor hidden = at::linear(shard_part(x, shard, 2), weight, one->bias);
    at::linear(hidden, weight, two->bias).sum().backward();
    EXPECT_TRUE(at::allclose(sums.leaves(one->weight)[shard].view({8, 8}), weight.grad(), 1e-5, 1e-5));
  }
}

TEST(Linear, BadInputIsRefusedWithTheLayersName) {
  const auto refused = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  Linear layer = made_linear({8, 6, 0});
  const auto context = std::make_shared<LayerContext>();
  context->shards = 3;
  layer->bind(context, "h.3.c_fc");
  EXPECT_EQ(refused([&] { layer(at::zeros({6, 7})); }), "h.3.c_fc (linear, 8 -> 6) was given an input of [6, 7]");
  EXPECT_EQ(refused([&] { layer(at::zeros({4, 8})); }), "h.3.c_fc has 4 rows for 3 shards");
  EXPECT_EQ(refused([&] { layer(at::zeros({2, 3, 8})); }), "h.3.c_fc has 2 rows for 3 shards");
  EXPECT_EQ(refused([&] { layer(at::zeros({8})); }), "h.3.c_fc has 1 rows for 3 shards");
  EXPECT_EQ(refused([] { Linear(0, 4); }), "a linear layer from 0 to 4 features");
  EXPECT_NE(refused([] { force_gemm_choices({"lt-1 forward = x; 00"}); }), "not refused");
  EXPECT_TRUE(gemm_choices().empty());
}

TEST(Linear, NoRowsGiveNoRowsAndLeavesOfZeros) {
  for (const LinearCase& c : kLinearCases) {
    Linear layer = made_linear(c);
    const LinearRun run = run_linear(layer, at::zeros({0, c.in}), at::zeros({0, c.out}), {.shards = 2});
    EXPECT_EQ(run.y.sizes(), (std::vector<int64_t>{0, c.out}));
    EXPECT_EQ(run.weight.abs().sum().item<float>(), 0);
    if (c.bias) EXPECT_EQ(run.bias.abs().sum().item<float>(), 0);
  }
}

// On a GPU an algorithm follows from this shape.
TEST(LinearPass, AnAlgorithmIsChosenForTheJobWhateverPartOfItIsInThePass) {
  Linear layer = made_linear({8, 6, 0});
  const auto context = std::make_shared<LayerContext>();
  layer->bind(context, "h");
  context->job_shards = 6;
  std::vector<LinearGemmShape> shapes;
  for (const int shards : {1, 2, 3, 6}) {
    context->shards = shards;
    const LinearPass pass = LinearPass::of(*layer, 40 * shards, 8, 6);
    EXPECT_EQ(pass.shards, shards);
    shapes.push_back(linear_gemm_shape(GemmKind::kForward, pass, FloatType::kBFloat16, false, true));
  }
  for (const LinearGemmShape& shape : shapes) {
    EXPECT_EQ(shape, shapes[0]);
    EXPECT_EQ(shape.shard_rows, 40);
    EXPECT_EQ(shape.job_shards, 6);
  }
}

TEST(Linear, HasTorchsParameters) {
  EXPECT_EQ(Linear(3, 2)->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(Linear(LinearOptions{.in = 3, .out = 2, .bias = false})->parameters().size(), 1u);
  EXPECT_EQ(Linear(3, 2)->weight.sizes(), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace tandem
