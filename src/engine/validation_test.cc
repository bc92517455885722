#include "engine/validation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "kernels/cpu/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"

namespace tandem {
namespace {

struct ValidatedSettings : RecipeSettings {
  int64_t held_out = 1003;  // does not divide by the rows of a pass
  ValidatedSettings() {
    shards = 12;
    batch_size = 48;
    steps = 10;
    validation.every = "2 steps";
  }
};

struct HeldOutRows : Dataset {
  HeldOutRows(uint64_t seed, int64_t count) : rows(count), x(at::empty({count, 5})), y(at::empty({count}, at::kLong)) {
    fill_normal(x.data_ptr<float>(), x.numel(), {.seed = seed});
    for (int64_t i = 0; i < count; ++i) y[i] = random_below({.seed = seed, .site = 1}, i, 3);
  }
  int64_t size() const override { return rows; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    const at::Tensor at = torch::tensor(std::vector<int64_t>(samples.begin(), samples.end()));
    return {x.index_select(0, at), y.index_select(0, at)};
  }
  int64_t rows;
  at::Tensor x, y;
};

struct ValidatedNet : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(5, 16))};
  BatchNorm norm{register_module("norm", BatchNorm(16))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(16, 3))};
};

struct ValidatedRecipe : SupervisedRecipe {
  explicit ValidatedRecipe(const ValidatedSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net = std::make_shared<ValidatedNet>(); }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<HeldOutRows>(1, 500); }
  std::unique_ptr<Dataset> make_validation_data() override {
    if (settings.held_out < 0) return nullptr;
    return std::make_unique<HeldOutRows>(2, settings.held_out);
  }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    const at::Tensor hidden = at::relu(net->norm(net->in(batch.tensors[0])));
    return net->out(dropout(hidden, 0.3, context.random(0)));
  }
  const ValidatedSettings& settings;
  std::shared_ptr<ValidatedNet> net;
};

std::unique_ptr<TrainLoop> loop_of(const ValidatedSettings& s, int workers = 1) {
  set_determinism();
  const std::vector<double> speeds(static_cast<size_t>(workers), 1);
  return std::make_unique<TrainLoop>(s, std::make_unique<ValidatedRecipe>(s),
                                     ShardPlan::balance(static_cast<int>(s.shards), speeds));
}

NamedValues validated(TrainLoop& loop, bool scheduled = true) {
  StepRecord record;
  loop.validate(record, scheduled);
  return record.metrics;
}

// Rows of the set in the batches of training, each with the libtorch calls that evaluation means, in a plain loop.
std::pair<double, double> plain_loop(TrainLoop& loop, const ValidatedSettings& s) {
  const HeldOutRows data(2, s.held_out);
  ValidatedNet& net = *static_cast<ValidatedRecipe&>(loop.recipe()).net;
  at::NoGradGuard no_grad;
  long double sum = 0;  // its 64 bits hold the sum of these floats exactly
  int64_t right = 0;
  const int64_t rows = s.micro_batch_size();
  for (int64_t first = 0; first < s.held_out; first += rows) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < rows; ++i) samples.push_back((first + i) % s.held_out);
    const std::vector<at::Tensor> batch = data.load(samples, {});
    at::Tensor x = net.in(batch[0]);
    x = (x - net.norm->running_mean) * (net.norm->weight / (net.norm->running_var + 1e-5).sqrt()) + net.norm->bias;
    loop.state().layers().training = false;
    const at::Tensor output = net.out(at::relu(net.norm(net.in(batch[0]))));
    EXPECT_TRUE(at::allclose(output, net.out(at::relu(x)), 1e-4, 1e-5));  // batch norm by its formula
    const at::Tensor losses = torch::nn::functional::cross_entropy(
        output, batch[1], torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    for (int64_t i = 0; i < std::min(rows, s.held_out - first); ++i) {
      sum += static_cast<long double>(losses[i].item<float>());
      right += output[i].argmax().item<int64_t>() == batch[1][i].item<int64_t>();
    }
  }
  return {static_cast<double>(sum) / static_cast<double>(s.held_out),
          static_cast<double>(right) / static_cast<double>(s.held_out)};
}

// Counts rows of each predicted class, and keeps the label and the prediction of every row.
struct GatheringRecipe : ValidatedRecipe {
  using ValidatedRecipe::ValidatedRecipe;
  MoreMetrics more_metrics() const override {
    return {.metrics = {{"first_class", true}, {"cell", true, false}}, .counts = 3, .gathered = 2};
  }
  void count_more(const at::Tensor& output, const Batch& batch, RowCounts& to) override {
    const at::Tensor predicted = output.argmax(1);
    const at::Tensor real = predicted.narrow(0, 0, to.real());
    to.count(0, real == 0);
    to.count(1, torch::stack({(real == 1).sum(), (real == 2).sum()}));
    to.gather(0, batch.tensors[1]);
    to.gather(1, predicted);
  }
  std::vector<double> more_values(const ValidationTotals& totals) const override {
    labels.assign(totals.gathered.begin(), totals.gathered.begin() + totals.samples);
    predicted.assign(totals.gathered.begin() + totals.samples, totals.gathered.end());
    counts.assign(totals.counts.begin(), totals.counts.end());
    return {static_cast<double>(counts[0]) / static_cast<double>(totals.samples), 0};
  }
  mutable std::vector<int64_t> labels, predicted, counts;
};

}  // namespace

TEST(Validation, ARecipesOwnCountsAndListsAreThoseOfTheWholeSetInItsOrder) {
  set_determinism();
  std::vector<int64_t> alone;
  for (const int workers : {1, 2, 3})
    for (const int64_t held_out : {int64_t{13}, int64_t{1003}}) {
      ValidatedSettings s;
      s.held_out = held_out;
      s.validation.best = "first_class";
      TrainLoop loop(
          s, std::make_unique<GatheringRecipe>(s),
          ShardPlan::balance(static_cast<int>(s.shards), std::vector<double>(static_cast<size_t>(workers), 1)));
      loop.step();
      EXPECT_EQ(validated(loop).front().first, "validation/first_class");
      const auto& recipe = static_cast<const GatheringRecipe&>(loop.recipe());
      const at::Tensor truth = HeldOutRows(2, held_out).y;
      EXPECT_EQ(recipe.labels, std::vector<int64_t>(truth.data_ptr<int64_t>(), truth.data_ptr<int64_t>() + held_out));
      for (int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(std::ranges::count(recipe.predicted, c), recipe.counts[static_cast<size_t>(c)]);
      if (held_out != 1003) continue;
      if (workers == 1) alone = recipe.predicted;
      EXPECT_EQ(recipe.predicted, alone) << workers;
    }
}

TEST(Validation, WhatOnlyIsReportedDecidesNothing) {
  ValidatedSettings s;
  s.validation.best = "cell";
  try {
    TrainLoop(s, std::make_unique<GatheringRecipe>(s), ShardPlan::balance(12, std::vector<double>{1}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.why(),
              "this recipe's validation gives validation/loss, validation/accuracy, validation/first_class");
  }
}

TEST(Validation, EqualsAPlainLoopOverTheSet) {
  for (const int64_t held_out : {int64_t{12}, int64_t{13}, int64_t{48}, int64_t{1003}}) {
    ValidatedSettings s;
    s.held_out = held_out;
    auto loop = loop_of(s);
    for (int i = 0; i < 5; ++i) loop->step();
    const auto [loss, accuracy] = plain_loop(*loop, s);
    const NamedValues found = validated(*loop);
    EXPECT_EQ(found, (NamedValues{{"validation/loss", loss}, {"validation/accuracy", accuracy}})) << held_out;
  }
}

TEST(Validation, IsTheSameForAnyNumberOfWorkersAndChangesNoBit) {
  ValidatedSettings s;
  auto quiet = loop_of(s);
  for (int i = 0; i < 4; ++i) quiet->step();
  std::vector<NamedValues> all;
  for (const int workers : {1, 2, 3, 5}) {
    auto loop = loop_of(s, workers);
    for (int i = 0; i < 4; ++i) {
      loop->step();
      const NamedValues found = validated(*loop);
      if (i == 3) all.push_back(found);
    }
    EXPECT_EQ(digest_of(*loop), digest_of(*quiet)) << workers;
    EXPECT_EQ(all.back(), all.front()) << workers;
  }
}

TEST(Validation, EveryShardTakesItsRowsAndTheRemainderIsMasked) {
  ValidatedSettings s;  // 12 shards x 4 rows a pass
  s.held_out = 101;
  auto loop = loop_of(s);
  const Validation& validation = loop->validation();
  ASSERT_EQ(validation.passes(0), 3);
  std::vector<int> seen(101);
  for (int64_t pass = 0; pass < 3; ++pass)
    for (int shard = 0; shard < 12; ++shard) {
      const Slice slice = validation.slice(0, pass, shard);
      ASSERT_EQ(slice.samples.size(), 4u);
      for (int64_t i = 0; i < slice.real; ++i) ++seen.at(static_cast<size_t>(slice.samples[static_cast<size_t>(i)]));
    }
  EXPECT_EQ(seen, std::vector<int>(101, 1));
}

TEST(Validation, TheBestStepAndThePatienceSurviveASnapshot) {
  ValidatedSettings s;
  s.validation.patience = 2;
  auto loop = loop_of(s);
  loop->step();
  validated(*loop);
  EXPECT_TRUE(loop->validation().is_best(1));
  const double best = *loop->validation().state().best;
  validated(*loop);  // no gain: the weights are the same
  EXPECT_FALSE(loop->validation().stops());
  const nlohmann::json kept = loop->validation().save();
  auto other = loop_of(s);
  other->validation().load(kept);
  EXPECT_EQ(other->validation().state().best, best);
  validated(*loop);
  EXPECT_TRUE(loop->validation().stops());
  EXPECT_EQ(other->validation().state().without_gain, 1);
  other->validation().load(loop->validation().save());
  EXPECT_TRUE(other->validation().stops());
}

TEST(Validation, AnUnscheduledOneDoesNotCountForThePatience) {
  ValidatedSettings s;
  s.validation.patience = 1;
  auto loop = loop_of(s);
  validated(*loop);
  validated(*loop, false);
  EXPECT_FALSE(loop->validation().stops());
}

TEST(Validation, ASmallerGainThanMinDeltaIsNone) {
  ValidatedSettings s;
  s.validation.min_delta = 1;
  auto loop = loop_of(s);
  const double loss = validated(*loop).front().second;
  for (const double more : {0.5, 1.5}) {
    loop->validation().load({{"metric", "validation/loss"},
                             {"best", loss + more},
                             {"best_step", 7},
                             {"validated_step", 7},
                             {"without_gain", 0}});
    validated(*loop);
    EXPECT_EQ(loop->validation().state().best_step, more < 1 ? 7 : 0);
  }
}

TEST(Validation, TheBestOfAnotherMetricIsForgotten) {
  ValidatedSettings s;
  auto loop = loop_of(s);
  validated(*loop);
  ValidatedSettings by_accuracy;
  by_accuracy.validation.best = "accuracy";
  auto other = loop_of(by_accuracy);
  other->validation().load(loop->validation().save());
  EXPECT_FALSE(other->validation().state().best);
  EXPECT_EQ(validated(*other).front().first, "validation/accuracy");  // what decides comes first
}

// As a user freezes a part of a model.
TEST(Validation, ModulesAreInTheirOwnModeAfterwards) {
  ValidatedSettings s;
  auto loop = loop_of(s);
  ValidatedNet& net = *static_cast<ValidatedRecipe&>(loop->recipe()).net;
  net.in->eval();
  validated(*loop);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(net.in->is_training());
  EXPECT_TRUE(net.out->is_training());
}

TEST(Validation, SettingsThatDoNotFitTheSetsAreRefused) {
  const auto reason = [](auto change) {
    ValidatedSettings s;
    change(s);
    try {
      loop_of(s);
    } catch (const ConfigError& error) {
      return std::string(error.what()) + " | " + error.why() + " | " + error.todo();
    }
    return std::string("accepted");
  };
  EXPECT_NE(reason([](auto& s) { s.validation.best = "acuracy"; }).find("did you mean `accuracy`"), std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.held_out = 11; }).find("11 samples, fewer than the 12 shards"), std::string::npos);
  EXPECT_NE(reason([](auto& s) {
              s.held_out = -1, s.validation.every = "auto", s.validation.best = "loss";
            }).find("no validation set"),
            std::string::npos);
  EXPECT_NE(reason([](auto& s) {
              s.held_out = -1, s.validation.every = "auto", s.validation.patience = 3;
            }).find("no validation set"),
            std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.validation.every = "never", s.validation.patience = 3; }).find("never"),
            std::string::npos);
  EXPECT_EQ(reason([](auto& s) { s.held_out = -1, s.validation.every = "auto"; }), "accepted");
}

}  // namespace tandem
