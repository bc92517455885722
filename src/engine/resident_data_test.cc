#include "engine/resident_data.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <numeric>

#include "base/errors.h"
#include "engine/batch_maker.h"
#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"

namespace tandem {
namespace {

// Rows of 1, 2, 4, 6 and 12 bytes: every width of word.
struct StillSamples : Dataset {
  explicit StillSamples(int64_t count, bool stays, uint64_t seed = 3) : count(count), stays(stays), seed(seed) {}
  int64_t size() const override { return count; }
  std::string name() const override { return "stills"; }
  bool resident() const override { return stays; }
  std::vector<DataField> fields() const override {
    return {{"x", at::kFloat, {3}},         {"label", at::kLong, {}}, {"odd", at::kByte, {3, 3}},
            {"half", at::kHalf, {1}},       {"six", at::kShort, {3}}, {"true", at::kBool, {}},
            {"four", at::kInt, {1, 1}, 0.0}};
  }
  void load_into(SampleWriter& out, const RandomKey& random) const override {
    ++loaded;
    const RandomKey own{.seed = seed, .step = static_cast<uint64_t>(out.sample())};
    for (size_t i = 0; i < 3; ++i) out.write<float>(0)[i] = random_normal(own, i);
    out.put<int64_t>(1, static_cast<int64_t>(random_below(own, 9, 3)));
    std::ranges::fill(out.write<uint8_t>(2), static_cast<uint8_t>(out.sample()));
    out.write<at::Half>(3)[0] = at::Half(static_cast<float>(out.sample()));
    std::ranges::fill(out.write<int16_t>(4), static_cast<int16_t>(-out.sample()));
    out.put<bool>(5, out.sample() % 2 == 0);
    out.write<int32_t>(6)[0] = augmented && out.sample() == count - 1 ? static_cast<int32_t>(random_u32(random, 0)) : 1;
  }
  int64_t count;
  bool stays, augmented = false;
  uint64_t seed;
  mutable std::atomic<int64_t> loaded{0};
};

std::string refused_to_stay(const Dataset& data) {
  BatchMaker maker(data, 1, 2);
  try {
    return maker.load_resident(2, SIZE_MAX);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
}

}  // namespace

TEST(ResidentData, RowsGatheredOnTheDeviceAreThoseThatWouldHaveBeenLoaded) {
  const StillSamples data(37, true);
  BatchMaker ordinary(data, 7, 5), resident(data, 7, 5);
  EXPECT_EQ(resident.load_resident(3, SIZE_MAX), "");
  const int64_t loaded = data.loaded;
  for (int64_t step = 0; step < 20; ++step) {
    Slice slice{.epoch = step / 8, .real = step % 6, .real_in_update = 5};
    for (int64_t row = 0; row < 5; ++row) slice.samples.push_back((step * 11 + row * row) % 37);
    Batch numbers = resident.make(slice, {});
    ASSERT_EQ(numbers.tensors.size(), 1u);
    EXPECT_EQ(data.loaded, loaded + step * 5 + (step > 0 ? 5 : 0))
        << "by the ordinary way alone, its first batch twice";
    const Batch batch = ordinary.make(slice, {});
    expand_resident(numbers);
    expand_resident(numbers);  // it is one no more
    ASSERT_EQ(numbers.tensors.size(), batch.tensors.size());
    for (size_t f = 0; f < batch.tensors.size(); ++f) {
      EXPECT_EQ(numbers.tensors[f].scalar_type(), batch.tensors[f].scalar_type()) << f;
      EXPECT_EQ(numbers.tensors[f].sizes(), batch.tensors[f].sizes()) << f;
      EXPECT_TRUE(at::equal(numbers.tensors[f], batch.tensors[f])) << f;
    }
    EXPECT_TRUE(at::equal(numbers.weight, batch.weight));
  }
}

TEST(ResidentData, IsTheSameInChunksOfAnySizeByAnyNumberOfThreads) {
  const StillSamples data(37, true);
  std::vector<int64_t> all(37);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<at::Tensor> expected = data.load(all, {});
  for (const int threads : {1, 8})
    for (const size_t chunk_bytes : {1, 210, 1000, 1 << 20}) {
      Batch batch{.tensors = {torch::tensor(all)}};
      std::atomic<int64_t> alive = 0;
      ResidentData(
          data, 7, threads, [&] { ++alive; }, chunk_bytes)
          .expand(batch);
      EXPECT_GE(alive.load(), 37) << "before each sample";
      for (size_t f = 0; f < expected.size(); ++f) EXPECT_TRUE(at::equal(batch.tensors[f], expected[f])) << chunk_bytes;
    }
}

TEST(ResidentData, OneThatDoesNotFitIsLoadedBatchByBatchAndTheRunSaysSo) {
  const StillSamples data(37, true);
  BatchMaker maker(data, 7, 5);
  EXPECT_EQ(ResidentData::bytes_of(data), 37u * (12 + 8 + 9 + 2 + 6 + 1 + 4));
  EXPECT_EQ(maker.load_resident(1, ResidentData::bytes_of(data) - 1),
            "the data set 'stills' is loaded batch by batch, though it is resident(): it takes 0.0 GB, and 0.0 may be "
            "used");
  EXPECT_EQ(maker.make({.samples = {1, 2, 3, 4, 5}}, {}).tensors.size(), 7u);
  EXPECT_EQ(maker.load_resident(1, ResidentData::bytes_of(data)), "");
  EXPECT_EQ(maker.make({.samples = {1, 2, 3, 4, 5}}, {}).tensors.size(), 1u);
  const StillSamples other(37, false);
  BatchMaker not_asked(other, 7, 5);
  EXPECT_EQ(not_asked.load_resident(1, SIZE_MAX), "");
  EXPECT_EQ(not_asked.make({.samples = {1, 2, 3, 4, 5}}, {}).tensors.size(), 7u);
}

TEST(ResidentData, ASampleThatDependsOnItsRandomStreamIsNamed) {
  for (const int64_t count : {1, 2, 37, 1000}) {
    StillSamples data(count, true);
    data.augmented = true;
    EXPECT_EQ(refused_to_stay(data), "sample " + std::to_string(count - 1) +
                                         " of the data set 'stills': element 0 of 'four' differs from epoch to epoch");
  }
  struct Tensors : Dataset {
    int64_t size() const override { return 4; }
    bool resident() const override { return true; }
    std::vector<at::Tensor> load(std::span<const int64_t>, const RandomKey&) const override { return {}; }
  };
  EXPECT_EQ(refused_to_stay(Tensors()), "the data set says resident() but declares no fields");
}

// ---- through the loop ----

namespace {

struct StillSettings : RecipeSettings {
  bool stays = false;
  explicit StillSettings(bool stays) : stays(stays) {
    shards = 6;
    batch_size = 24;
    validation.every = "3 steps";
  }
};

struct StillRecipe : SupervisedRecipe {
  explicit StillRecipe(const StillSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override {
    return net = std::make_shared<torch::nn::LinearImpl>(3, 3);
  }
  std::unique_ptr<Dataset> make_data() override {  // 100 = 4 x 24 and a remainder
    auto made = std::make_unique<StillSamples>(100, settings.stays);
    data = made.get();
    return made;
  }
  std::unique_ptr<Dataset> make_validation_data() override {
    auto made = std::make_unique<StillSamples>(31, settings.stays, 4);
    held_out = made.get();
    return made;
  }
  at::Tensor forward(const Batch& batch, ShardContext&) override { return net->forward(batch.tensors[0]); }
  const StillSettings& settings;
  std::shared_ptr<torch::nn::LinearImpl> net;
  StillSamples *data = nullptr, *held_out = nullptr;
};

struct StillRun {
  std::string digest;
  NamedValues metrics;
  int64_t loaded = 0, held_out_loaded = 0;
};

StillRun run_stills(bool stays, int workers, int64_t accumulation = 1) {
  set_determinism();
  StillSettings settings(stays);
  settings.accumulation = accumulation;
  auto recipe = std::make_unique<StillRecipe>(settings);
  StillRecipe& kept = *recipe;
  TrainLoop loop(settings, std::move(recipe),
                 ShardPlan::balance(static_cast<int>(settings.shards), std::vector<double>(workers, 1)));
  EXPECT_EQ(kept.data->loaded, 0) << "a loop that only describes its job loads nothing";
  StillRun run;
  for (int step = 0; step < 12; ++step) {
    StepRecord record = loop.step();
    loop.validate_if_due(record, step == 11);
    for (const auto& metric : record.metrics) run.metrics.push_back(metric);
  }
  run.digest = digest_of(loop);
  run.loaded = kept.data->loaded;
  run.held_out_loaded = kept.held_out->loaded;
  return run;
}

}  // namespace

TEST(ResidentData, TrainsAndValidatesToTheSameBitsRemaindersIncluded) {
  for (const int64_t accumulation : {1, 2})
    for (const int workers : {1, 3}) {
      const StillRun ordinary = run_stills(false, workers, accumulation),
                     resident = run_stills(true, workers, accumulation);
      EXPECT_EQ(resident.digest, ordinary.digest);
      EXPECT_EQ(resident.metrics, ordinary.metrics);
      // 16 samples that are proved, in two epochs, the first of them twice over; chunks twice for the first.
      EXPECT_EQ(resident.loaded, 3 * 16 + 2 * 100) << "once each, whatever the steps";
      EXPECT_LE(resident.held_out_loaded, 1 + 3 * 16 + 2 * 31);
    }
}

}  // namespace tandem
