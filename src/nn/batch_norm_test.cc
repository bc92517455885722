#include "nn/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "base/errors.h"
#include "nn/stored_sums.h"

namespace tandem {
namespace {

struct NormCase {
  std::vector<int64_t> sizes;
  bool channels_last = false;
  bool relu = false, add = false;
  at::ScalarType type = at::kFloat;
};

struct NormRun {
  at::Tensor y, dx, dadd, weight, bias, mean, var;  // leaves [shards, channels]
};

at::Tensor norm_input(const NormCase& c, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  const at::Tensor x = (torch::randn(c.sizes) * 1.7 + 3).to(c.type);
  const auto last = x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  return c.channels_last ? x.contiguous(last) : x;
}

BatchNorm layer_with_values(int64_t channels) {
  torch::manual_seed(7);
  BatchNorm layer(channels);
  at::NoGradGuard no_grad;
  layer->weight.copy_(torch::randn({channels}));
  layer->bias.copy_(torch::randn({channels}));
  return layer;
}

// Rows of `shards` shards in one pass.
NormRun run_norm(BatchNorm& layer, const NormCase& c, const at::Tensor& x0, const at::Tensor& add0,
                 const at::Tensor& dy, int shards) {
  StoredSums sums;
  LayerContext& pass = layer->pass();
  static_cast<MicroBatch&>(pass) = {.training = true, .share = 0.25, .real = 1};
  pass.shards = shards;
  pass.sums = &sums;
  at::Tensor x = x0.clone().requires_grad_(), add = add0.clone().requires_grad_();
  NormRun run;
  run.y = layer->forward(x, {.relu = c.relu, .add = c.add ? add : at::Tensor()});
  run.y.backward(dy);
  EXPECT_TRUE(sums.all_came());
  pass.sums = nullptr;
  pass.shards = 1;
  run.dx = x.grad();
  run.dadd = add.grad();
  run.weight = sums.leaves(layer->weight);
  run.bias = sums.leaves(layer->bias);
  run.mean = sums.leaves(layer->running_mean);
  run.var = sums.leaves(layer->running_var);
  return run;
}

std::vector<NormCase> norm_cases(int64_t shards) {
  return {{{shards * 70, 5}},
          {{shards * 3, 5, 4, 3}, false, true},
          {{shards * 2, 64, 14, 14}, true, true, true},
          {{shards * 3, 19, 9, 11}, true, false, true},
          {{shards * 3, 19, 9, 11}, false, true, true},
          {{shards * 2, 24, 7, 7}, true, true, false, at::kBFloat16},
          {{shards * 2, 24, 7, 7}, true, true, true, at::kHalf},
          {{shards * 2, 6, 3, 5, 4}},
          {{shards * 2, 32, 3, 6, 8}, true, true, false},
          {{shards * 2, 32, 3, 6, 8}, true, true, false, at::kBFloat16}};
}

TEST(BatchNorm, ShardsInOnePassHaveTheBitsThatTheyHaveAlone) {
  for (const int shards : {1, 2, 3, 5})
    for (const NormCase& c : norm_cases(shards)) {
      const at::Tensor x = norm_input(c, 1), add = norm_input(c, 2), dy = norm_input(c, 3) - 3;
      BatchNorm layer = layer_with_values(c.sizes[1]);
      const NormRun all = run_norm(layer, c, x, add, dy, shards);
      BatchNorm careful = layer_with_values(c.sizes[1]);
      careful->use_one_by_one();
      const NormRun inside = run_norm(careful, c, x, add, dy, shards);
      EXPECT_TRUE(at::equal(all.y, inside.y) && at::equal(all.dx, inside.dx) && at::equal(all.weight, inside.weight));
      const int64_t rows = c.sizes[0] / shards;
      for (int shard = 0; shard < shards; ++shard) {
        const auto part = [&](const at::Tensor& t) { return t.narrow(0, shard * rows, rows); };
        const NormRun one = run_norm(layer, c, part(x), part(add), part(dy), 1);
        EXPECT_TRUE(at::equal(part(all.y), one.y)) << shards;
        EXPECT_TRUE(at::equal(part(all.dx), one.dx)) << shards;
        EXPECT_TRUE(!c.add || at::equal(part(all.dadd), one.dadd)) << shards;
        EXPECT_TRUE(at::equal(all.weight[shard], one.weight[0])) << shards;
        EXPECT_TRUE(at::equal(all.bias[shard], one.bias[0])) << shards;
        EXPECT_TRUE(at::equal(all.mean[shard], one.mean[0])) << shards;
        EXPECT_TRUE(at::equal(all.var[shard], one.var[0])) << shards;
      }
    }
}

TEST(BatchNorm, ForwardGradientsAndStatisticsAreTorchs) {
  for (const NormCase& c : norm_cases(1)) {
    const double tolerance = c.type == at::kFloat ? 1e-5 : c.type == at::kHalf ? 4e-3 : 3e-2;
    const at::Tensor x0 = norm_input(c, 1), add0 = norm_input(c, 2), dy = norm_input(c, 3) - 3;
    BatchNorm layer = layer_with_values(c.sizes[1]);
    const NormRun ours = run_norm(layer, c, x0, add0, dy, 1);
    at::Tensor mean = at::zeros({c.sizes[1]}), var = at::zeros({c.sizes[1]});
    at::Tensor x = x0.to(at::kFloat).requires_grad_(), add = add0.to(at::kFloat).requires_grad_();
    at::Tensor w = layer->weight.detach().clone().requires_grad_(), b = layer->bias.detach().clone().requires_grad_();
    at::Tensor y = at::batch_norm(x, w, b, mean, var, true, 1.0, 1e-5, false);
    if (c.add) y = y + add;
    if (c.relu) y = at::relu(y);
    // Where rounding to fewer bits decides a ReLU's side, the gradients differ: not a fault.
    y.backward(dy.to(at::kFloat));
    const auto near = [&](const at::Tensor& a, const at::Tensor& expected, double scale = 1) {
      return at::allclose(a.to(at::kFloat), expected, tolerance, tolerance * scale);
    };
    EXPECT_TRUE(near(ours.y, y));
    EXPECT_TRUE(near(ours.dx, x.grad()));
    EXPECT_TRUE(!c.add || near(ours.dadd, add.grad()));
    EXPECT_TRUE(near(ours.weight[0], w.grad(), 10));
    EXPECT_TRUE(near(ours.bias[0], b.grad(), 10));
    EXPECT_TRUE(near(ours.mean[0] * 4, mean));
    EXPECT_TRUE(near(ours.var[0] * 4, var));
    EXPECT_TRUE(at::equal(layer->running_mean, at::zeros_like(mean))) << "forward must not touch the running ones";
  }
}

TEST(BatchNorm, WithoutAnEngineAutogradGivesTheSameGradients) {
  const NormCase c{{6, 5, 4, 3}, false, true, true};
  const at::Tensor x0 = norm_input(c, 1), add0 = norm_input(c, 2), dy = norm_input(c, 3);
  BatchNorm layer = layer_with_values(5);
  const NormRun with = run_norm(layer, c, x0, add0, dy, 1);
  at::Tensor x = x0.clone().requires_grad_(), add = add0.clone().requires_grad_();
  layer->forward(x, {.relu = true, .add = add}).backward(dy);
  EXPECT_TRUE(at::equal(layer->weight.grad(), with.weight[0]));
  EXPECT_TRUE(at::equal(layer->bias.grad(), with.bias[0]));
  EXPECT_TRUE(at::equal(x.grad(), with.dx));
  EXPECT_TRUE(at::equal(add.grad(), with.dadd));
}

TEST(BatchNorm, ChannelsLastAndContiguousMemoryGiveEqualBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const NormCase plain{{6, 21, 13, 9}, false, true, true, type};
    const at::Tensor x = norm_input(plain, 1), add = norm_input(plain, 2), dy = norm_input(plain, 3);
    const auto last = [](const at::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); };
    BatchNorm layer = layer_with_values(21);
    const NormRun a = run_norm(layer, plain, x, add, dy, 3);
    const NormRun b = run_norm(layer, plain, last(x), last(add), dy, 3);
    EXPECT_TRUE(b.y.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(at::equal(a.y, b.y));
    EXPECT_TRUE(at::equal(a.dx, b.dx));
    EXPECT_TRUE(at::equal(a.dadd, b.dadd));
    EXPECT_TRUE(at::equal(a.weight, b.weight));
    EXPECT_TRUE(at::equal(a.var, b.var));
  }
}

TEST(BatchNorm, VarianceSurvivesAMeanMuchLargerThanIt) {
  const NormCase c{{4096, 3}};
  const at::Tensor x = norm_input(c, 1) + 10'000, dy = norm_input(c, 3);
  BatchNorm layer(3);
  const NormRun run = run_norm(layer, c, x, x, dy, 1);
  EXPECT_TRUE(at::allclose(run.var[0] * 4, x.to(at::kDouble).var(0).to(at::kFloat), 1e-3, 0));
}

TEST(BatchNorm, OutsideTrainingUsesTheRunningStatistics) {
  BatchNorm bn(2);
  {
    at::NoGradGuard no_grad;
    bn->running_mean.copy_(torch::tensor({1.f, 2.f}));
    bn->running_var.copy_(torch::tensor({4.f, 9.f}));
  }
  const at::Tensor x = torch::tensor({{3.f, 8.f}});
  const at::Tensor y = bn->forward(x);
  EXPECT_NEAR(y[0][0].item<float>(), 1, 1e-5);
  EXPECT_NEAR(y[0][1].item<float>(), 2, 1e-5);
  const at::Tensor fused = bn->forward(x, {.relu = true, .add = torch::tensor({{-5.f, 1.f}})});
  EXPECT_NEAR(fused[0][0].item<float>(), 0, 1e-5);
  EXPECT_NEAR(fused[0][1].item<float>(), 3, 1e-5);
}

TEST(BatchNorm, SyncedStatisticsAreThoseOfAllShardsWithReluAndAddAround) {
  const NormCase c{{8, 5, 3, 3}, false, true, true};
  const at::Tensor x = norm_input(c, 1), add = norm_input(c, 2), dy = norm_input(c, 3);
  BatchNorm whole = layer_with_values(5), synced = layer_with_values(5);
  const NormRun expected = run_norm(whole, c, x, add, dy, 1);
  synced->pass().all_reduce = [](std::span<double>) {};  // a job of one shard: its sums are those of all
  const NormRun found = run_norm(synced, c, x, add, dy, 1);
  EXPECT_TRUE(at::allclose(found.y, expected.y, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.dx, expected.dx, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.dadd, expected.dadd, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(found.weight, expected.weight, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(found.bias, expected.bias, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(found.var, expected.var, 1e-5, 1e-5));
}

TEST(BatchNorm, RefusesRowsThatDoNotDivideByTheShardsAndOtherShapes) {
  BatchNorm layer(5);
  layer->pass().training = true;
  layer->bind(std::make_shared<LayerContext>(layer->pass()), "stem.norm");
  layer->pass().shards = 3;
  try {
    layer->forward(torch::randn({7, 5}));
    FAIL() << "7 rows for 3 shards";
  } catch (const ConfigError& error) {
    for (const char* part : {"stem.norm", "7", "3"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  EXPECT_THROW(layer->forward(torch::randn({6, 4})), ConfigError);
  EXPECT_THROW(layer->forward(torch::randn({3, 5})), ConfigError) << "one value has no variance";
  EXPECT_THROW(layer->forward(torch::randn({6, 5}), {.add = torch::randn({6, 4})}), ConfigError);
}

}  // namespace
}  // namespace tandem
