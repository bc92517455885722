// Models of the layers of src/nn (tests/gpu/shard_models.h): several shards in one pass give the bits of one by one,
// for any number of them in a pass and on a worker, and the numbers of torch's own layers.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "base/shared_memory.h"
#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "reduce/shm_combine.h"
#include "shard_recipe.h"

namespace tandem {
namespace {

constexpr int kModelShards = 11;
const std::vector<ShardRange> kFourWorkers{{0, 1}, {1, 3}, {3, 6}, {6, 11}};  // 1, 2, 3 and 5 shards
constexpr int kModelSteps = 5;                                                // an epoch is 3, the last one padded

ShardSettings small_model(const std::string& model) {
  ShardSettings s;
  s.model = model;
  s.shards = kModelShards;
  s.batch_size = 2 * kModelShards;
  s.samples = 50;
  s.layers = model == "resnet" ? 1 : 2;
  s.width = model == "resnet" ? 8 : 32;
  s.tokens = 12;
  s.vocabulary = 24;
  s.side = 8;
  s.classes = 10;
  s.seed = 7;
  s.loader.threads = 0;
  return s;
}

std::unique_ptr<TrainLoop> lone_worker(const ShardSettings& settings) {
  return std::make_unique<TrainLoop>(settings, make_shard_recipe(settings),
                                     ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
}

struct ModelRun {
  std::map<std::string, at::Tensor> state;
  std::vector<double> losses;
  std::vector<std::string> notes;
};

void add_steps(TrainLoop& loop, int steps, ModelRun& run) {
  for (int i = 0; i < steps; ++i) {
    run.losses.push_back(loop.step().loss);
    for (const std::string& note : loop.take_notes(true)) run.notes.push_back(note);
  }
  for (const NamedTensor& t : loop.state().model_tensors()) run.state[t.name] = t.tensor.clone();
  for (const NamedTensor& t : loop.state().replicated_state()) run.state["replicated " + t.name] = t.tensor.clone();
}

ModelRun train_alone(ShardSettings settings, int64_t shards_per_pass) {
  settings.shards_per_pass = shards_per_pass;
  settings.check();
  ModelRun run;
  add_steps(*lone_worker(settings), kModelSteps, run);
  return run;
}

// A thread for each worker; their combine is that of processes.
std::vector<ModelRun> train_workers(const ShardSettings& settings, const std::vector<ShardRange>& ranges) {
  struct NobodyDies : Watch {
    bool abandoned(uint64_t, int64_t) const override { return false; }
  } watch;
  const ContributionLayout most = lone_worker(settings)->largest_layout();
  const ShmShape shape{.shards = static_cast<int>(settings.shards),
                       .ranges = ranges,
                       .max_floats = most.floats,
                       .max_counts = most.counts,
                       .max_maxima = most.maxima,
                       .exchange = most.exchange};
  const SharedMemory segment = SharedMemory::create("shard-models", shm_combine_bytes(shape));
  std::vector<std::unique_ptr<TrainLoop>> loops;
  for (size_t me = 0; me < ranges.size(); ++me)
    loops.push_back(std::make_unique<TrainLoop>(
        settings, make_shard_recipe(settings), ranges[me],
        std::make_unique<ShmCombine>(shape, static_cast<int>(me),
                                     SharedMemory::adopt(dup(segment.fd()), segment.bytes().size()), 1, 0, watch)));
  std::vector<ModelRun> runs(ranges.size());
  std::vector<std::thread> threads;
  for (size_t me = 0; me < ranges.size(); ++me)
    threads.emplace_back([&, me] {
      prepare_thread();
      add_steps(*loops[me], kModelSteps, runs[me]);
    });
  for (std::thread& thread : threads) thread.join();
  return runs;
}

void expect_same_bits(const ModelRun& want, const ModelRun& got, const std::string& how) {
  EXPECT_EQ(want.losses, got.losses) << how;
  ASSERT_EQ(want.state.size(), got.state.size()) << how;
  for (const auto& [name, tensor] : got.state)
    EXPECT_TRUE(at::equal(tensor, want.state.at(name))) << how << ": " << name;
  EXPECT_EQ(want.notes, got.notes) << how << ": nothing falls back";
}

class ShardModels : public ::testing::TestWithParam<std::string> {
 protected:
  ShardModels() { set_determinism(); }
  static void expect_one_result(const ShardSettings& settings, const std::vector<int64_t>& passes = {0, 2, 3, 5}) {
    const ModelRun want = train_alone(settings, 1);
    EXPECT_LT(want.losses.back(), want.losses.front()) << "it learns";
    for (const int64_t shards : passes)
      expect_same_bits(want, train_alone(settings, shards), std::to_string(shards) + " shards to a pass");
    for (const ModelRun& got : train_workers(settings, kFourWorkers)) expect_same_bits(want, got, "four workers");
  }
};

TEST_P(ShardModels, GiveTheBitsOfOneByOneForAnyShardsInAPassAndOnAWorker) {
  expect_one_result(small_model(GetParam()));
}

TEST_P(ShardModels, DoSoWithDataThatStaysOnTheDevice) {
  ShardSettings settings = small_model(GetParam());
  const ModelRun want = train_alone(settings, 1);
  settings.resident = true;
  expect_same_bits(want, train_alone(settings, 0), "resident");
}

TEST_P(ShardModels, DoSoInBf16WithAccumulation) {
  ShardSettings settings = small_model(GetParam());
  settings.precision = "bf16";
  settings.accumulation = 2;
  settings.batch_size *= 2;
  settings.samples *= 2;
  expect_one_result(settings, {0});
}

TEST_P(ShardModels, DoSoInFp16WithLossScaling) {
  ShardSettings settings = small_model(GetParam());
  settings.precision = "fp16";
  settings.amp.growth_steps = 2;
  const ModelRun want = train_alone(settings, 1);
  expect_same_bits(want, train_alone(settings, 0), "in one pass");
}

TEST_P(ShardModels, ARunResumedWithOtherPassesKeepsItsBits) {
  ShardSettings one = small_model(GetParam()), several = one;
  one.shards_per_pass = 1;
  const ModelRun want = train_alone(one, 1);
  ModelRun before, after;
  auto first = lone_worker(several), second = lone_worker(one);
  add_steps(*first, 2, before);
  const Snapshot taken = take_snapshot(*first);
  read_snapshot(*second, snapshot_layout(*second), taken.block);
  add_steps(*second, kModelSteps - 2, after);
  after.losses.insert(after.losses.begin(), before.losses.begin(), before.losses.end());
  expect_same_bits(want, after, "resumed");
}

// Without dropout: theirs draws in another order.
TEST_P(ShardModels, GiveTheNumbersOfTorchsOwnLayers) {
  ShardSettings ours = small_model(GetParam());
  ours.dropout = 0;
  ShardSettings plain = ours;
  plain.plain = true;
  const ModelRun want = train_alone(plain, 0), got = train_alone(ours, 0);
  if (GetParam() == "resnet") {  // its batch norm is ours: the run says what keeps it from one pass
    ASSERT_EQ(want.notes.size(), 1u);
    EXPECT_NE(want.notes[0].find("'conv1'"), std::string::npos) << want.notes[0];
  } else {
    EXPECT_TRUE(want.notes.empty()) << want.notes.front();
  }
  for (size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4) << "step " << i;
  for (const auto& [name, tensor] : want.state) {
    if (name.starts_with("replicated ")) continue;  // Adam's moments: of gradients that are 0 but for rounding
    ASSERT_TRUE(got.state.contains(name)) << name;
    ASSERT_EQ(got.state.at(name).sizes(), tensor.sizes()) << name;
    // Where a gradient is near 0, rounding decides which way Adam goes: a few elements may differ by its rate.
    EXPECT_LT((got.state.at(name) - tensor).abs().mean().item<double>(), 2e-4) << name;
  }
}

TEST_P(ShardModels, AModelThatMixesRowsFallsBackAndSaysWhere) {
  ShardSettings settings = small_model(GetParam());
  settings.mixes_rows = true;
  const ModelRun want = train_alone(settings, 1), got = train_alone(settings, 0);
  EXPECT_EQ(want.losses, got.losses);
  for (const auto& [name, tensor] : got.state) EXPECT_TRUE(at::equal(tensor, want.state.at(name))) << name;
  ASSERT_EQ(got.notes.size(), 1u);
  const std::string first = GetParam() == "resnet" ? "conv1" : GetParam() == "bert" ? "ln_e" : "h.0.ln_1";
  EXPECT_NE(got.notes[0].find("'" + first + "'"), std::string::npos) << got.notes[0];
}

INSTANTIATE_TEST_SUITE_P(All, ShardModels, ::testing::Values("gpt", "bert", "resnet"),
                         [](const auto& info) { return info.param; });

// Logits of a few tokens at a time: 9 of a shard's 24, so that the last chunk is short.
TEST(ShardModelsWithAChunkedHead, GiveTheBitsOfOneByOneAndTheLossesOfAllLogitsAtOnce) {
  set_determinism();
  ShardSettings settings = small_model("gpt");
  const ModelRun whole = train_alone(settings, 1);
  settings.head_chunk = 9;
  const ModelRun want = train_alone(settings, 1);
  EXPECT_EQ(want.losses.front(), whole.losses.front());
  EXPECT_NEAR(want.losses.back(), whole.losses.back(), 1e-4);
  expect_same_bits(want, train_alone(settings, 0), "in one pass");
  for (const ModelRun& got : train_workers(settings, kFourWorkers)) expect_same_bits(want, got, "four workers");
}

// Statistics of the whole batch: an all-reduce inside the phase, in lock-step.
TEST(ShardModelsWithSyncBn, GiveTheBitsOfOneWorkerOnFour) {
  set_determinism();
  ShardSettings settings = small_model("resnet");
  settings.sync_bn = true;
  const ModelRun want = train_alone(settings, 1);
  expect_same_bits(want, train_alone(settings, 0), "in one pass");
  for (const ModelRun& got : train_workers(settings, kFourWorkers)) expect_same_bits(want, got, "four workers");
}

}  // namespace
}  // namespace tandem
