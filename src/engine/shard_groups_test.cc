// Several shards in one pass give the bits of one by one; what does not, falls back by name.
#include "engine/shard_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/emulated_gpu.h"
#include "engine/supervised.h"
#include "engine/suspect_error.h"
#include "engine/train_loop.h"
#include "kernels/cpu/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/tie_weights.h"

namespace tandem {
namespace {

struct PassSettings : RecipeSettings {
  PassSettings() {
    shards = 6;
    batch_size = 48;
    loader.threads = 0;
    optimizer.learning_rate = 0.01;
  }
  bool plain = false, mixes = false, tied = false, odd_layer = false, nan_row = false, fixed_rows = false;
  int64_t samples = 480;
  int64_t mixes_from = 0;  // rows are mixed from this step on, in graphs too; 0: never
  int64_t fades_from = 0;  // a number from the host changes at this step: a graph keeps that of its capture; 0: never
  int fails_at_call = 0;   // of forward() in the 33rd step, for lack of memory; 0: never
};

struct PassData : Dataset {
  explicit PassData(const PassSettings& s) : count(s.samples), nan_row(s.nan_row) {}
  int64_t size() const override { return count; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    at::Tensor x = at::empty({static_cast<int64_t>(samples.size()), 12}),
               y = at::empty({static_cast<int64_t>(samples.size())}, at::kLong);
    for (size_t i = 0; i < samples.size(); ++i) {
      fill_normal(x[static_cast<int64_t>(i)].data_ptr<float>(), 12, {.seed = 3},
                  static_cast<uint64_t>(samples[i]) * 12);
      y[static_cast<int64_t>(i)] = samples[i] % 4;
      if (nan_row && samples[i] == 77) x[static_cast<int64_t>(i)].fill_(std::nanf(""));
    }
    return {x, y};
  }
  int64_t count;
  bool nan_row;
};

// A layer that is made for passes, and whose rows depend on their neighbours all the same.
struct OddLayerImpl : torch::nn::Module, ShardAware {
  at::Tensor forward(const at::Tensor& x) {
    trace("input", x);
    std::vector<at::Tensor> parts;
    const int64_t shards = one_by_one() ? pass().shards : 1;
    for (const at::Tensor& part : x.chunk(shards)) parts.push_back(part - 1e-3 * part.mean(0, true));
    const at::Tensor y = at::cat(parts);
    trace("output", y);
    return y;
  }
};
TORCH_MODULE(OddLayer);

struct PassNet : torch::nn::Module {
  explicit PassNet(const PassSettings& s) {
    in = register_module("in", Linear(12, 16));
    norm = register_module("norm", BatchNorm(16));
    mid = register_module("mid", Linear(16, 16));
    if (s.tied) {
      mid2 = register_module("mid2", Linear(16, 16));
      tie_weights(mid2, mid);
    }
    if (s.odd_layer) odd = register_module("odd", OddLayer());
    if (s.plain) plain = register_module("plain", torch::nn::Linear(16, 16));
    out = register_module("out", Linear(16, 4));
  }
  at::Tensor forward(at::Tensor x, const RandomSource& key, bool mixes) {
    x = dropout(at::relu(norm(in(x))), 0.2, key);
    x = at::relu(mid(x));
    if (mid2) x = at::relu(mid2(x));
    if (plain) x = plain(x);
    if (odd) x = odd(x);
    if (mixes) x = x - 1e-3 * x.mean(0, true);
    return out(x);
  }
  Linear in{nullptr}, mid{nullptr}, mid2{nullptr}, out{nullptr};
  BatchNorm norm{nullptr};
  torch::nn::Linear plain{nullptr};
  OddLayer odd{nullptr};
};

struct PassRecipe : SupervisedRecipe {
  explicit PassRecipe(const PassSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net = std::make_shared<PassNet>(settings); }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<PassData>(settings); }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    most_at_once = std::max(most_at_once, context.group);
    const at::Tensor x = settings.fixed_rows ? batch.tensors[0].view({8, 12}) : batch.tensors[0];
    at_once = context.group;
    if (settings.fails_at_call > 0 && now == 32 && ++calls == settings.fails_at_call) throw std::bad_alloc();
    const bool mixes = settings.mixes_from > 0 && now >= settings.mixes_from;
    const double factor = settings.fades_from > 0 && context.step >= settings.fades_from ? 0.5 : 1;
    return net->forward(x * factor, context.random(0), settings.mixes || mixes);
  }
  const PassSettings& settings;
  std::shared_ptr<PassNet> net;
  int most_at_once = 0, at_once = 0;  // shards, in the last call
  int calls = 0;                      // in the 33rd step
  int64_t now = 0;                    // the step that is run, when a graph is replayed too
};

struct Trained {
  at::Tensor weights, running;
  std::vector<double> losses;
  std::vector<std::string> notes;
  int most_at_once = 0;
  bool operator==(const Trained& other) const {
    return at::equal(weights, other.weights) && at::equal(running, other.running) &&
           std::ranges::equal(losses, other.losses, [](double a, double b) { return a == b || (a != a && b != b); });
  }
};

Trained outcome(TrainLoop& loop, int steps) {
  Trained got;
  for (int i = 0; i < steps; ++i) {
    static_cast<PassRecipe&>(loop.recipe()).now = loop.steps_done();
    got.losses.push_back(loop.step().loss);
    if (!loop.note().empty()) got.notes.push_back(loop.note());
  }
  const auto copy = [](std::span<float> v) {
    return at::from_blob(v.data(), {static_cast<int64_t>(v.size())}).clone();
  };
  got.weights = copy(loop.state().parameters());
  got.running = copy(loop.state().running_statistics());
  got.most_at_once = static_cast<PassRecipe&>(loop.recipe()).most_at_once;
  return got;
}

class ShardPasses : public ::testing::Test {
 protected:
  ShardPasses() { set_determinism(); }
  static Trained train(const PassSettings& s, int steps = 20, std::vector<double> speeds = {1}) {
    TrainLoop loop(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(static_cast<int>(s.shards), speeds));
    return outcome(loop, steps);
  }
  static Trained with(PassSettings s, int64_t per_pass, std::vector<double> speeds = {1}) {
    s.shards_per_pass = per_pass;
    return train(s, 20, std::move(speeds));
  }
};

TEST_F(ShardPasses, OfAnySizeGiveTheBitsOfOneByOne) {
  for (const int64_t shards : {1, 2, 3, 5, 6}) {
    PassSettings s;
    s.shards = shards;
    s.batch_size = shards * 8;
    const Trained want = with(s, 1);
    EXPECT_EQ(want.most_at_once, 1);
    for (const int64_t per_pass : {2, 4, 0}) {
      const Trained got = with(s, per_pass);
      EXPECT_TRUE(got == want) << shards << " shards, " << per_pass;
      EXPECT_TRUE(got.notes.empty()) << got.notes.front();
      EXPECT_EQ(got.most_at_once, per_pass == 0 ? shards : std::min(per_pass, shards));
    }
  }
}

TEST_F(ShardPasses, OfAWorkersOwnShardsGiveTheBitsOfOneWorker) {
  const PassSettings s;
  const Trained want = with(s, 1);
  for (const std::vector<double>& speeds : {std::vector<double>{1, 1}, {1, 2}, {1, 1, 1}, {5, 1}})
    for (const int64_t per_pass : {1, 2, 0}) EXPECT_TRUE(with(s, per_pass, speeds) == want) << per_pass;
}

TEST_F(ShardPasses, WithMicroBatchesTiedWeightsPaddingAndLowPrecisionGiveTheBitsOfOneByOne) {
  std::vector<PassSettings> all(5);
  all[0].accumulation = 2;
  all[1].tied = true;
  all[2].samples = 470;  // the last batch of an epoch is padded
  all[3].precision = "bf16";
  all[4].tied = true;
  all[4].accumulation = 4;
  for (PassSettings& s : all) {
    const Trained want = with(s, 1);
    for (const int64_t per_pass : {2, 0}) {
      const Trained got = with(s, per_pass);
      EXPECT_TRUE(got == want) << &s - all.data() << ", " << per_pass;
      EXPECT_GT(got.most_at_once, 1);
    }
  }
}

TEST_F(ShardPasses, AreNotMadeWithALayerThatAddsOverAllRowsAndTheRunNamesIt) {
  PassSettings s;
  s.plain = true;
  const Trained got = train(s);
  EXPECT_EQ(got.most_at_once, 1);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("'plain' (torch::nn::LinearImpl)"), std::string::npos) << got.notes[0];
}

TEST_F(ShardPasses, FallBackWhereAnOperatorMixesRowsAndTheRunSaysWhere) {
  PassSettings s;
  s.mixes = true;
  const Trained want = with(s, 1), got = with(s, 0);
  EXPECT_TRUE(got == want);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("the input of layer 'out'"), std::string::npos) << got.notes[0];
}

// They served, and then a kernel, the memory or a driver changed what they give.
TEST_F(ShardPasses, ThatGaveTheSameBitsAndDifferLaterEndTheRunAtTheNextComparison) {
  for (const auto& [from, ends_at] : {std::pair<int64_t, int64_t>{2, 16}, {16, 16}, {17, 32}})
    for (const int64_t per_pass : {2, 0})
      for (const std::vector<double>& speeds : {std::vector<double>{1}, {1, 2}}) {
        PassSettings s;
        s.mixes_from = from;
        s.shards_per_pass = per_pass;
        TrainLoop loop(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(6, speeds));
        try {
          outcome(loop, 40);
          FAIL() << "it went on with other bits, from step " << from;
        } catch (const SuspectError& error) {
          EXPECT_EQ(loop.steps_done(), ends_at) << from;
          EXPECT_EQ(error.equal_at(), ends_at == 16 ? 1 : 16) << from;
          EXPECT_EQ(error.resume_with(), "--set shards_per_pass=1");
          EXPECT_EQ(error.code(), ExitCode::kFailed);
          EXPECT_EQ(
              std::string(error.what()),
              fmt::format("phase 'learn' gave other bits for {} shards in one pass than for one by one, at step {}",
                          per_pass == 0 ? 6 : 2, ends_at));
          EXPECT_NE(error.why().find("the input of layer 'out'"), std::string::npos) << error.why();
          EXPECT_NE(error.todo().find("memory of this machine"), std::string::npos) << error.todo();
        }
      }
}

TEST_F(ShardPasses, ThatDifferLaterEndTheRunThoughThereIsNoMemoryToSeeWhere) {
  PassSettings s;
  s.mixes_from = 17;
  s.fails_at_call = 8;  // six alone and one together differ, then
  TrainLoop loop(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(6, std::vector{1.0}));
  try {
    outcome(loop, 40);
    FAIL() << "it went on";
  } catch (const SuspectError& error) {
    EXPECT_NE(error.why().find("where: not found (std::bad_alloc); such passes"), std::string::npos) << error.why();
    EXPECT_EQ(error.equal_at(), 16);
  }
}

// So that a checkpoint of up to there is kept. What is trained again from an earlier step is compared again.
TEST_F(ShardPasses, TellUpToWhichStepTheyWereEqual) {
  PassSettings s;
  TrainLoop loop(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(6, std::vector{1.0}));
  EXPECT_EQ(loop.equal_at(), std::nullopt);
  outcome(loop, 1);
  EXPECT_EQ(loop.equal_at(), std::nullopt);
  outcome(loop, 20);
  EXPECT_EQ(loop.equal_at(), 16);
  loop.visit_in_order({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(loop.equal_at(), 16);
  loop.set_steps_done(10);
  EXPECT_EQ(loop.equal_at(), 10);
}

TEST_F(ShardPasses, AreComparedAfterFourThousandRunsAtMostHoweverLongTheRun) {
  for (const int64_t every : {1, 3}) {
    const Phase phase{.every = every};
    int64_t last = 16;
    for (int64_t number = 17; number < 100000; ++number) {
      if (!compares_again({.phase = &phase, .step = number * every})) continue;
      EXPECT_LE(number - last, 4096);
      last = number;
    }
    EXPECT_GT(last, 100000 - 4096);
  }
}

// Its shards have a state, which run() changes.
struct StatefulRecipe : Recipe {
  StatefulRecipe(const PassSettings& s, bool says_so) : inner(s), says_so(says_so) {}
  void build(JobState& state) override {
    inner.build(state);
    seen = state.add_shard_field("seen", {1}, at::kLong);
  }
  std::vector<Phase> phases() const override {
    std::vector<Phase> all = inner.phases();
    all[0].changes_state = says_so;
    return all;
  }
  const Dataset* dataset() const override { return inner.dataset(); }
  void run(const Phase& phase, ShardContext& context) override {
    inner.run(phase, context);
    context.state(seen).add_(1);
  }
  void apply(const Phase& phase, const Total& total, StepContext& context) override {
    inner.apply(phase, total, context);
  }
  PassRecipe inner;
  bool says_so;
  ShardField seen;
};

// It would change with every comparison, and so with the number of shards that a worker has.
TEST_F(ShardPasses, OfAPhaseThatChangesItsShardsStateUnannouncedAreRefused) {
  PassSettings s;
  TrainLoop loop(s, std::make_unique<StatefulRecipe>(s, /*says_so=*/false), ShardPlan::balance(6, std::vector{1.0}));
  loop.step();
  try {
    loop.step();
    FAIL() << "it went on";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "phase 'learn' changes its shards' state and does not say so");
    EXPECT_NE(error.todo().find("let Recipe::phases() say changes_state"), std::string::npos) << error.todo();
  }
}

TEST_F(ShardPasses, AreRefusedToAPhaseWithGradientsThatChangesItsShardsState) {
  PassSettings s;
  EXPECT_THROW(TrainLoop(s, std::make_unique<StatefulRecipe>(s, true), ShardPlan::balance(6, std::vector{1.0})),
               std::logic_error);
}

TEST_F(ShardPasses, ThatDifferLaterEndNoRunWhereShardsRunOneByOneInAnyCase) {
  PassSettings s;
  s.mixes_from = 2;
  s.shards_per_pass = 1;
  EXPECT_EQ(train(s, 40).losses.size(), 40u);
}

TEST_F(ShardPasses, RunALayerOneByOneWhereItAloneDiffersAndTheRunNamesIt) {
  PassSettings s;
  s.odd_layer = true;
  const Trained want = with(s, 1), got = with(s, 0);
  EXPECT_TRUE(got == want);
  EXPECT_EQ(got.most_at_once, 6);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("layer 'odd'"), std::string::npos) << got.notes[0];
}

TEST_F(ShardPasses, AreGivenUpWhereAModelTakesTheRowsOfOneShardOnlyAndTheRunSaysWhy) {
  PassSettings s;
  s.fixed_rows = true;
  const Trained want = with(s, 1), got = with(s, 0);
  EXPECT_TRUE(got == want);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("several shards at once are refused: shape '[8, 12]'"), std::string::npos)
      << got.notes[0];
}

TEST_F(ShardPasses, KeepWhatAutogradFoundForOtherLayersWithMicroBatches) {
  PassSettings s;
  s.plain = true;
  s.accumulation = 2;
  TrainLoop loop(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(6, std::vector{1.0}));
  const at::Tensor& weight = static_cast<PassRecipe&>(loop.recipe()).net->plain->weight;
  const at::Tensor before = weight.detach().clone();
  loop.step();
  EXPECT_FALSE(at::equal(weight, before)) << "its gradient was lost";
}

TEST_F(ShardPasses, NameTheShardOfANaN) {
  PassSettings s;
  s.nan_row = true;
  const Trained want = with(s, 1), got = with(s, 0);
  EXPECT_TRUE(got == want);
  EXPECT_FALSE(want.notes.empty());
  EXPECT_EQ(got.notes, want.notes);
}

// While it lives, this process has an emulated GPU, whose captures leave the weights of `running` as they are.
struct GpuOfPasses {
  explicit GpuOfPasses(bool captures = true) {
    auto made = std::make_unique<EmulatedGpu>();
    if (captures) made->capture_by([this](const std::function<void()>& work) { untouched(work); });
    gpu = made.get();
    use_gpu(std::move(made));
  }
  ~GpuOfPasses() { use_gpu(nullptr); }
  void untouched(const std::function<void()>& work) {
    JobState& state = running->state();
    const std::vector<std::span<float>> all{state.parameters(), state.running_statistics(), state.optimizer_state(0),
                                            state.optimizer_state(1)};
    std::vector<std::vector<float>> before;
    for (const std::span<float> one : all) before.emplace_back(one.begin(), one.end());
    work();
    for (size_t i = 0; i < all.size(); ++i) std::ranges::copy(before[i], all[i].begin());
  }
  EmulatedGpu* gpu;
  TrainLoop* running = nullptr;
};

class CapturedPasses : public ShardPasses {
 protected:
  static std::unique_ptr<TrainLoop> begin(const PassSettings& s, GpuOfPasses& on) {
    auto loop =
        std::make_unique<TrainLoop>(s, std::make_unique<PassRecipe>(s), ShardPlan::balance(6, std::vector{1.0}));
    on.running = loop.get();
    return loop;
  }
  static std::optional<SuspectError> failure(const PassSettings& s) {
    GpuOfPasses on;
    const auto loop = begin(s, on);
    try {
      outcome(*loop, 40);
    } catch (const SuspectError& error) {
      EXPECT_EQ(loop->steps_done(), 32);
      return error;
    }
    return std::nullopt;
  }
};

TEST_F(CapturedPasses, WithTheUpdateGiveTheSameBits) {
  PassSettings s;
  const Trained want = with(s, 1);
  for (const int64_t per_pass : {1, 2, 0}) {
    s.shards_per_pass = per_pass;
    GpuOfPasses on;
    const auto loop = begin(s, on);
    const Trained got = outcome(*loop, 20);
    EXPECT_TRUE(got == want) << per_pass;
    EXPECT_TRUE(got.notes.empty()) << got.notes.front();
    EXPECT_EQ(got.most_at_once, per_pass == 0 ? 6 : per_pass);
    EXPECT_GE(on.gpu->captures, 2);
    EXPECT_GT(on.gpu->replays, 10);
  }
}

TEST_F(CapturedPasses, ThatCannotBeCapturedKeepSeveralShardsToAPass) {
  PassSettings s;
  const Trained want = with(s, 1);
  GpuOfPasses on(/*captures=*/false);
  const auto loop = begin(s, on);
  const Trained got = outcome(*loop, 20);
  EXPECT_TRUE(got == want);
  EXPECT_EQ(static_cast<PassRecipe&>(loop->recipe()).at_once, 6);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("runs eagerly"), std::string::npos) << got.notes[0];
}

TEST_F(CapturedPasses, ThatDifferLaterAreNamedWithTheirLayerAndNotTheGraph) {
  PassSettings s;
  s.mixes_from = 17;
  const auto error = failure(s);
  ASSERT_TRUE(error);
  EXPECT_EQ(std::string(error->what()),
            "phase 'learn' gave other bits for 6 shards in one pass than for one by one, at step 32");
  EXPECT_NE(error->why().find("the input of layer 'out'"), std::string::npos) << error->why();
  EXPECT_NE(error->todo().find("memory of this GPU"), std::string::npos) << error->todo();
  EXPECT_EQ(error->equal_at(), 16);
  EXPECT_EQ(error->resume_with(), "--set shards_per_pass=1");
}

TEST_F(CapturedPasses, AreNotBlamedForAGraphThatGoesStale) {
  PassSettings s;
  s.fades_from = 17;
  const auto error = failure(s);
  ASSERT_TRUE(error);
  EXPECT_EQ(std::string(error->what()),
            "the CUDA graph of phase 'learn', 6 shards to a pass, gives other bits than its calls shard by shard, at "
            "step 32");
  EXPECT_NE(error->why().find("outside the graph give the right bits"), std::string::npos) << error->why();
  EXPECT_EQ(error->equal_at(), 16);
  EXPECT_EQ(error->resume_with(), "TANDEM_GRAPHS=off");
}

TEST_F(CapturedPasses, WhoseGraphGoesStaleEndTheRunThoughThereIsNoMemoryToSeeWhere) {
  PassSettings s;
  s.fades_from = 17;
  s.fails_at_call = 8;  // six alone and a replay differ, then
  const auto error = failure(s);
  ASSERT_TRUE(error);
  EXPECT_NE(error->why().find("where: not found (std::bad_alloc); what run() does"), std::string::npos) << error->why();
  EXPECT_EQ(error->equal_at(), 16);
}

}  // namespace
}  // namespace tandem
