// Every executor gives the bits of the serial one: on one, two and three workers, with phases that change state, that
// exchange, that run now and then, or that can't be captured.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/emulated_gpu.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "engine/walk_recipe.h"
#include "engine/worker_threads.h"

namespace tandem {
namespace {

constexpr int kShards = 6;

std::map<std::string, at::Tensor> everything(TrainLoop& loop) {
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& t : loop.state().model_tensors()) all[t.name] = t.tensor;
  for (const NamedTensor& t : loop.state().replicated_state()) all["replicated " + t.name] = t.tensor;
  for (int shard = loop.state().mine().first; shard < loop.state().mine().last; ++shard)
    for (const NamedTensor& t : loop.state().shard_state(shard)) all[t.name + " " + std::to_string(shard)] = t.tensor;
  return all;
}

struct Outcome {
  std::map<std::string, at::Tensor> state;
  std::vector<double> reported, losses;
  std::vector<std::string> notes;
};

thread_local TrainLoop* running = nullptr;  // in this thread
thread_local bool capturing = false;
thread_local bool ran_a_shard = false;  // a NotingWalk, since the last capture began
std::atomic<int> sums_left = 0;         // by kernels that others kept waiting too long

void run_steps(TrainLoop& loop, int steps, Outcome& out) {
  running = &loop;
  for (int i = 0; i < steps; ++i) {
    out.losses.push_back(loop.step().loss);
    if (!loop.note().empty()) out.notes.push_back(loop.note());
  }
  for (const auto& [name, tensor] : everything(loop)) out.state[name] = tensor.clone();
  out.reported = static_cast<WalkRecipe&>(loop.recipe()).reported;
}

// While it lives, this process has an emulated GPU, which captures.
struct OnEmulatedGpu {
  OnEmulatedGpu() {
    auto made = std::make_unique<EmulatedGpu>([this](const std::function<void()>& work) {
      std::map<std::string, at::Tensor> before;
      for (const auto& [name, tensor] : everything(*running)) before[name] = tensor.clone();
      capturing = true;
      ran_a_shard = false;
      work();
      capturing = false;
      at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : everything(*running)) tensor.copy_(before.at(name));
      if (refuses_updates && !ran_a_shard) throw std::runtime_error("no updates here");
    });
    gpu = made.get();
    use_gpu(std::move(made));
  }
  ~OnEmulatedGpu() { use_gpu(nullptr); }
  EmulatedGpu* gpu;
  bool refuses_updates = false;  // of a NotingWalk
};

class Executors : public ::testing::Test {
 protected:
  Executors() { set_determinism(); }
  static constexpr int kSteps = 40;  // past the comparisons at 16 and 32

  static std::unique_ptr<TrainLoop> alone(const WalkSettings& settings) {
    return std::make_unique<TrainLoop>(settings, std::make_unique<WalkRecipe>(settings),
                                       ShardPlan::balance(kShards, std::vector{1.0}));
  }
  template <class Kind>
  static std::unique_ptr<TrainLoop> alone_of(const WalkSettings& settings) {
    return std::make_unique<TrainLoop>(settings, std::make_unique<Kind>(settings),
                                       ShardPlan::balance(kShards, std::vector{1.0}));
  }
  static Outcome serial(const WalkSettings& settings) {
    Outcome out;
    run_steps(*alone(settings), kSteps, out);
    return out;
  }
  // A thread for each worker. The sum over peers is a kernel, so a capture does not run it.
  template <class Kind = WalkRecipe>
  struct Workers {
    Workers(const WalkSettings& settings, const std::vector<ShardRange>& ranges, Between between)
        : together({.shards = kShards,
                    .ranges = ranges,
                    .max_floats = 64,
                    .max_counts = 8,
                    .max_maxima = 40,
                    .exchange = true},
                   between, kernels()),
          outcomes(ranges.size()),
          make([this, &settings, ranges] {  // one by one: libtorch draws the first weights from one generator
            for (size_t me = 0; me < ranges.size(); ++me)
              loops.push_back(std::make_unique<TrainLoop>(settings, std::make_unique<Kind>(settings), ranges[me],
                                                          together.combine(me)));
          }) {}
    static const PeerKernels& kernels() {
      static const PeerKernels kernels{[](const PeerSum& sum, void* stream) {
                                         if (capturing) return;
                                         PeerKernels::cpu().queue(sum, stream);
                                         sums_left += sum.bad && *sum.bad == 0;
                                       },
                                       PeerKernels::cpu().most_blocks};
      return kernels;
    }
    void train(int steps) {
      if (loops.empty()) make();
      std::vector<std::thread> threads;
      for (size_t me = 0; me < loops.size(); ++me)
        threads.emplace_back([this, me, steps] { run_steps(*loops[me], steps, outcomes[me]); });
      for (std::thread& thread : threads) thread.join();
    }
    WorkerThreads together;
    std::vector<Outcome> outcomes;
    std::function<void()> make;
    std::vector<std::unique_ptr<TrainLoop>> loops;
  };
  template <class Kind = WalkRecipe>
  static std::vector<Outcome> workers(const WalkSettings& settings, const std::vector<ShardRange>& ranges,
                                      Between between) {
    Workers<Kind> all(settings, ranges, between);
    all.train(kSteps);
    return all.outcomes;
  }
  static void expect_same(const Outcome& want, const Outcome& got) {
    EXPECT_EQ(want.losses, got.losses);
    EXPECT_EQ(want.reported, got.reported);
    for (const auto& [name, tensor] : got.state) EXPECT_TRUE(at::equal(tensor, want.state.at(name))) << name;
  }
};

TEST_F(Executors, CapturedPhasesThatChangeStateAndExchangeGiveTheBitsOfSerialOnes) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  OnEmulatedGpu on;
  auto loop = alone(settings);
  Outcome got;
  run_steps(*loop, kSteps, got);
  expect_same(want, got);
  EXPECT_TRUE(got.notes.empty()) << got.notes.front();
  EXPECT_GE(on.gpu->captures, 3);  // walk; learn without its update and with it
  EXPECT_GT(on.gpu->replays, kSteps);
}

TEST_F(Executors, WorkersGiveTheBitsOfOneWhereMessagesGoThroughTheHost) {
  WalkSettings settings;
  settings.messages = true;
  const Outcome want = serial(settings);
  for (const Between between : {Between::kCpus, Between::kGpus}) {
    std::optional<OnEmulatedGpu> on;
    if (between == Between::kGpus) on.emplace();
    for (const Outcome& got : workers(settings, {{0, 2}, {2, 6}}, between)) expect_same(want, got);
  }
}

// All shards in one pass, rows for others included.
struct BatchedWalk : WalkRecipe {
  using WalkRecipe::WalkRecipe;
  int passes = 0;
  std::vector<Phase> phases() const override {
    std::vector<Phase> all = WalkRecipe::phases();
    all[0].batched = true;
    return all;
  }
  void run_batched(const Phase&, std::span<ShardContext> shards, std::span<const Subtree>) override {
    ++passes;
    for (ShardContext& context : shards) walk(context.state(position), context);
  }
};

TEST_F(Executors, ABatchedPhaseSendsTheRowsOfOneByOne) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  for (const auto& weights : {std::vector{1.0}, std::vector{1.0, 2.0}}) {
    auto recipe = std::make_unique<BatchedWalk>(settings);
    BatchedWalk& batched = *recipe;
    TrainLoop loop(settings, std::move(recipe), ShardPlan::balance(kShards, weights));
    Outcome got;
    run_steps(loop, kSteps, got);
    expect_same(want, got);
    EXPECT_EQ(batched.passes, kSteps / 2);
  }
}

// What a graph has captured changes at step 60: found at the phase's 32nd run, step 96, whatever its interval.
TEST_F(Executors, AGraphThatGoesStaleInAPhaseOfEveryThirdStepEndsTheRun) {
  struct Changing : WalkRecipe {
    using WalkRecipe::WalkRecipe;
    void run(const Phase& phase, ShardContext& context) override {
      WalkRecipe::run(phase, context);
      at::NoGradGuard no_grad;
      if (phase.id == 0 && context.step >= 60) context.state(position).add_(1);
    }
  };
  WalkSettings settings;
  settings.walk_every = 3;
  OnEmulatedGpu on;
  TrainLoop loop(settings, std::make_unique<Changing>(settings), ShardPlan::balance(kShards, std::vector{1.0}));
  Outcome got;
  EXPECT_THROW(run_steps(loop, 100, got), Error);
  EXPECT_EQ(loop.steps_done(), 96);
}

TEST_F(Executors, AStateThatChangesUnannouncedIsRefused) {
  struct Silent : WalkRecipe {
    using WalkRecipe::WalkRecipe;
    std::vector<Phase> phases() const override {
      std::vector<Phase> all = WalkRecipe::phases();
      all[0].changes_state = false;
      return all;
    }
  };
  const WalkSettings settings;
  OnEmulatedGpu on;
  TrainLoop loop(settings, std::make_unique<Silent>(settings), ShardPlan::balance(kShards, std::vector{1.0}));
  EXPECT_THROW(loop.step(), std::logic_error);
}

TEST_F(Executors, WorkersGiveTheBitsOfOne) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  for (const auto& ranges :
       std::vector<std::vector<ShardRange>>{{{0, 6}}, {{0, 2}, {2, 6}}, {{0, 1}, {1, 4}, {4, 6}}}) {
    for (const Outcome& got : workers(settings, ranges, Between::kCpus)) expect_same(want, got);
    OnEmulatedGpu on;
    for (const Outcome& got : workers(settings, ranges, Between::kGpus)) {
      expect_same(want, got);
      EXPECT_TRUE(got.notes.empty()) << got.notes.front();
    }
    EXPECT_GE(on.gpu->captures, 3 * static_cast<int>(ranges.size()));  // walk, learn, the update
  }
}

// Where GPUs sum by themselves, a step of `learn` is one launch on any number of them: not its shards, then its update.
TEST_F(Executors, WorkersWhoseGpusSumByThemselvesLaunchAStepAsOneGraph) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  for (const auto& ranges : std::vector<std::vector<ShardRange>>{{{0, 2}, {2, 6}}, {{0, 1}, {1, 4}, {4, 6}}}) {
    int replays[2];
    for (const Between between : {Between::kGpus, Between::kPeers}) {
      OnEmulatedGpu on;
      for (const Outcome& got : workers(settings, ranges, between)) {
        expect_same(want, got);
        EXPECT_TRUE(got.notes.empty()) << got.notes.front();
      }
      replays[between == Between::kPeers] = on.gpu->replays;
    }
    const int workers = static_cast<int>(ranges.size());
    EXPECT_GE(replays[0] - replays[1], workers * (kSteps - 8)) << replays[0] << " and " << replays[1];
  }
}

// A wait that ends at once: the sum is left, with the update behind it held, and queued again until the other is there.
TEST_F(Executors, WhoWaitsForALateWorkerInsideAStepsGraphUpdatesOnce) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  OnEmulatedGpu on;
  Workers<> workers(settings, {{0, 2}, {2, 6}}, Between::kPeers);
  workers.together.wait_ns = 1;
  sums_left = 0;
  workers.train(kSteps);
  EXPECT_GT(sums_left, 0);
  for (const Outcome& got : workers.outcomes) expect_same(want, got);
}

TEST_F(Executors, AWorkerWhoseOthersAreGoneLeavesAStepsGraphAndUpdatesNothing) {
  const WalkSettings settings;
  OnEmulatedGpu on;
  Workers<> workers(settings, {{0, 2}, {2, 6}}, Between::kPeers);
  workers.train(21);  // the next step has no walk
  TrainLoop& loop = *workers.loops[0];
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : everything(loop)) before[name] = tensor.clone();
  const int replays = on.gpu->replays;
  workers.together.abandon = true;
  EXPECT_THROW(loop.step(), MembersChanged);
  EXPECT_EQ(on.gpu->replays, replays) << "it asked before";
  workers.together.abandon = false;
  workers.together.abandon_when([&] { return on.gpu->replays > replays; });
  EXPECT_THROW(loop.step(), MembersChanged);
  EXPECT_EQ(on.gpu->replays, replays + 1);
  for (const auto& [name, tensor] : everything(loop)) EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
}

// At a step at which walk does not run: what was received in the step before counts no more.
TEST_F(Executors, ARunThatIsResumedBetweenTwoWalksHasTheBitsOfOneThatIsNot) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  for (const bool on_gpu : {false, true}) {
    std::optional<OnEmulatedGpu> on;
    if (on_gpu) on.emplace();
    Outcome before, got;
    auto first = alone(settings), second = alone(settings);
    run_steps(*first, 21, before);
    const Snapshot taken = take_snapshot(*first);
    read_snapshot(*second, snapshot_layout(*second), taken.block);
    run_steps(*second, kSteps - 21, got);
    got.losses.insert(got.losses.begin(), before.losses.begin(), before.losses.end());
    got.reported.insert(got.reported.begin(), before.reported.begin(), before.reported.end());
    expect_same(want, got);
  }
}

TEST_F(Executors, APhaseRunsEveryNthStepOnly) {
  WalkSettings settings;
  settings.walk_every = 3;
  EXPECT_EQ(serial(settings).reported.size(), 2u * 14);  // steps 0, 3, ..., 39
}

TEST_F(Executors, WhatCannotBeCapturedRunsEagerlyAndSaysWhy) {
  for (const auto& [what, why] :
       std::vector<std::pair<bool WalkSettings::*, std::string>>{{&WalkSettings::host_sum, "adds up context.floats"},
                                                                 {&WalkSettings::messages, "sends messages"},
                                                                 {&WalkSettings::step_dependent, "gave other bits"},
                                                                 {&WalkSettings::secret, "gave other bits"}}) {
    WalkSettings settings;
    settings.*what = true;
    const Outcome want = serial(settings);
    OnEmulatedGpu on;
    auto loop = alone(settings);
    Outcome got;
    run_steps(*loop, kSteps, got);
    expect_same(want, got);
    ASSERT_EQ(got.notes.size(), 1u) << why;
    EXPECT_NE(got.notes[0].find("phase 'walk' runs eagerly"), std::string::npos) << got.notes[0];
    EXPECT_NE(got.notes[0].find(why), std::string::npos) << got.notes[0];
  }
}

// From step 20 on its inputs are longer.
struct GrowingWalk : WalkRecipe {
  using WalkRecipe::WalkRecipe;
  std::vector<at::Tensor> inputs(const Phase& phase, ShardContext& context) override {
    if (phase.id == 0) return {};
    return {at::full({context.step < 20 ? 2 : 3}, 0.1f)};
  }
  void run(const Phase& phase, ShardContext& context) override {
    if (phase.id == 0) return WalkRecipe::run(phase, context);
    const at::Tensor seen = (context.state(position) + context.inputs()[0].sum()).unsqueeze(0);
    const at::Tensor loss = (net->forward(seen) - 1).pow(2).sum() / static_cast<double>(kShards);
    context.backward(loss);
    context.add(0, loss.detach());
  }
};

TEST_F(Executors, APhaseWhoseInputsChangeTheirSizesRunsEagerlyFromThenOnAndSaysWhy) {
  const WalkSettings settings;
  Outcome want, got;
  run_steps(*alone_of<GrowingWalk>(settings), kSteps, want);
  OnEmulatedGpu on;
  auto loop = alone_of<GrowingWalk>(settings);
  run_steps(*loop, 20, got);
  EXPECT_TRUE(got.notes.empty());
  run_steps(*loop, kSteps - 20, got);
  expect_same(want, got);
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_NE(got.notes[0].find("phase 'learn' runs eagerly"), std::string::npos) << got.notes[0];
  EXPECT_NE(got.notes[0].find("inputs change their sizes"), std::string::npos) << got.notes[0];
}

struct NotingWalk : WalkRecipe {
  using WalkRecipe::WalkRecipe;
  void run(const Phase& phase, ShardContext& context) override {
    ran_a_shard = true;
    WalkRecipe::run(phase, context);
  }
};

TEST_F(Executors, AnUpdateThatCannotBeCapturedRunsEagerlyBesideGraphsOfItsShards) {
  const WalkSettings settings;
  const Outcome want = serial(settings);
  OnEmulatedGpu on;
  on.refuses_updates = true;
  for (const Outcome& got : workers<NotingWalk>(settings, {{0, 2}, {2, 6}}, Between::kGpus)) {
    expect_same(want, got);
    ASSERT_EQ(got.notes.size(), 1u);
    EXPECT_EQ(got.notes[0], "the update of phase 'learn' runs eagerly: no updates here");
  }
  EXPECT_GT(on.gpu->replays, 2 * kSteps);
}

TEST_F(Executors, UpdatesThatAreNoNumbersAreSkippedAlike) {
  WalkSettings settings;
  settings.optimizer.learning_rate = 1e30;
  settings.nan.patience = 2;
  settings.nan.max_rollbacks = 100;
  const Outcome want = serial(settings);
  EXPECT_TRUE(std::ranges::any_of(want.losses, [](double loss) { return !std::isfinite(loss); }));
  OnEmulatedGpu on;
  for (const auto& ranges : std::vector<std::vector<ShardRange>>{{{0, 6}}, {{0, 1}, {1, 4}, {4, 6}}})
    for (const Between between : {Between::kGpus, Between::kPeers})
      for (const Outcome& got : workers(settings, ranges, between)) {
        for (const auto& [name, tensor] : got.state) EXPECT_TRUE(at::equal(tensor, want.state.at(name))) << name;
        EXPECT_EQ(got.notes, want.notes);
      }
}

// Every shard's gradient is a number, their sum is none: no flag is raised, and the update finds out by the total.
struct SteepWalk : WalkRecipe {
  using WalkRecipe::WalkRecipe;
  void run(const Phase& phase, ShardContext& context) override {
    if (phase.id == 0) return WalkRecipe::run(phase, context);
    context.backward(net->weight.sum() * 1e38);
    context.add(0, at::zeros({}));
  }
};

TEST_F(Executors, ASumThatIsNoNumberIsSkippedAlikeThoughItsPartsAreNumbers) {
  WalkSettings settings;
  settings.nan.patience = 100;
  Outcome want;
  run_steps(*alone_of<SteepWalk>(settings), kSteps, want);
  ASSERT_EQ(want.notes.size(), static_cast<size_t>(kSteps));
  OnEmulatedGpu on;
  for (const Between between : {Between::kGpus, Between::kPeers})
    for (const Outcome& got : workers<SteepWalk>(settings, {{0, 2}, {2, 6}}, between)) {
      for (const auto& [name, tensor] : got.state) EXPECT_TRUE(at::equal(tensor, want.state.at(name))) << name;
      EXPECT_EQ(got.notes, want.notes);
    }
}

TEST_F(Executors, PhasesThatCannotWorkAreRefused) {
  struct Sends : WalkRecipe {
    using WalkRecipe::WalkRecipe;
    std::vector<Phase> phases() const override {
      std::vector<Phase> all = WalkRecipe::phases();
      all[1].every = 3;
      return all;
    }
  };
  struct Both : WalkRecipe {
    using WalkRecipe::WalkRecipe;
    std::vector<Phase> phases() const override {
      std::vector<Phase> all = WalkRecipe::phases();
      all[0].exchange = true;
      return all;
    }
  };
  struct Never : WalkRecipe {
    using WalkRecipe::WalkRecipe;
    std::vector<Phase> phases() const override {
      std::vector<Phase> all = WalkRecipe::phases();
      all[0].every = 0;
      return all;
    }
  };
  const WalkSettings settings;
  EXPECT_THROW(alone_of<Both>(settings), std::logic_error);
  EXPECT_THROW(alone_of<Never>(settings), std::logic_error);
  EXPECT_THROW(TrainLoop(settings, std::make_unique<Sends>(settings), ShardPlan::balance(kShards, std::vector{1.0})),
               std::logic_error);
}

}  // namespace
}  // namespace tandem
