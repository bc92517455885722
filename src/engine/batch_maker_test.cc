#include "engine/batch_maker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>

#include "base/errors.h"
#include "engine/loader.h"

namespace tandem {
namespace {

constexpr int64_t kClips = 40, kRows = 4;

// Frames, a text of changing length, a label: each a function of sample and random stream.
class Clips : public Dataset {
 public:
  using Write = std::function<void(SampleWriter&, const RandomKey&)>;
  explicit Clips(Write write = {}) : write_(std::move(write)) {}
  int64_t size() const override { return kClips; }
  std::string name() const override { return "clips"; }
  std::vector<DataField> fields() const override {
    return {{"frames", at::kFloat, {3, 5}}, {"text", at::kInt, {7}, /*padding=*/-100}, {"label", at::kLong, {}}};
  }
  void load_into(SampleWriter& out, const RandomKey& random) const override {
    if (write_) return write_(out, random);
    const std::span<float> frames = out.write<float>(0, {3, 5});
    for (size_t i = 0; i < frames.size(); ++i) frames[i] = random_normal(random, i);
    for (int32_t& token : out.write_padded<int32_t>(1, out.sample() % 8)) token = static_cast<int32_t>(out.sample());
    out.put<int64_t>(2, out.sample() * 10);
  }

 private:
  Write write_;
};

Slice clip_slice(int64_t step, int64_t epoch = 0, int64_t real = kRows) {
  Slice slice{.epoch = epoch, .real = real, .real_in_update = real};
  for (int64_t row = 0; row < kRows; ++row) slice.samples.push_back((step * kRows + row * 7) % kClips);
  return slice;
}

void expect_clips(const Batch& batch, uint64_t seed) {
  ASSERT_EQ(batch.tensors.size(), 3u);
  ASSERT_EQ(batch.tensors[0].sizes(), (std::vector<int64_t>{kRows, 3, 5}));
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t sample = batch.slice.samples[static_cast<size_t>(row)];
    const RandomKey key = sample_key(seed, batch.slice.epoch, sample);
    const float* frames = batch.tensors[0].const_data_ptr<float>() + row * 15;
    const int32_t* text = batch.tensors[1].const_data_ptr<int32_t>() + row * 7;
    for (int64_t i = 0; i < 15; ++i) ASSERT_EQ(frames[i], random_normal(key, static_cast<uint64_t>(i)));
    for (int64_t i = 0; i < 7; ++i) ASSERT_EQ(text[i], i < sample % 8 ? sample : -100);
    ASSERT_EQ(batch.tensors[2].const_data_ptr<int64_t>()[row], sample * 10);
    ASSERT_EQ(batch.weight.const_data_ptr<float>()[row], row < batch.slice.real ? 1 : 0);
  }
}

std::string refusal(const Clips::Write& write) {
  const Clips clips(write);
  BatchMaker maker(clips, 5, kRows);
  try {
    maker.make(clip_slice(3), {});
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

void write_rest(SampleWriter& out) {
  std::ranges::fill(out.write<float>(0), 1.0f);
  out.write_padded<int32_t>(1, 0);
}

LoadKey next_clip(const LoadKey& key) { return {key.step + 1, 0, 0}; }

TEST(BatchMaker, SamplesLieInTheBatchAsTheyWereWrittenWithPaddingAndWeights) {
  const Clips clips;
  BatchMaker maker(clips, 5, kRows);
  for (int64_t step = 0; step < 30; ++step)
    expect_clips(maker.make(clip_slice(step, step / 9, 1 + step % kRows), {}), 5);
  EXPECT_EQ(maker.buffers_made(), 2u) << "one in use, and the one that the first batch was compared with";
}

TEST(BatchMaker, AugmentationFollowsSeedEpochAndSampleNotTheBatch) {
  const Clips clips;
  BatchMaker maker(clips, 5, kRows);
  const auto frames_of = [&](int64_t epoch, std::vector<int64_t> samples, size_t row) {
    Slice slice{.epoch = epoch, .samples = std::move(samples), .real = kRows, .real_in_update = kRows};
    return maker.make(slice, {}).tensors[0][static_cast<int64_t>(row)].clone();
  };
  EXPECT_TRUE(at::equal(frames_of(2, {9, 1, 2, 3}, 0), frames_of(2, {4, 5, 6, 9}, 3)));
  EXPECT_FALSE(at::equal(frames_of(2, {9, 1, 2, 3}, 0), frames_of(3, {9, 1, 2, 3}, 0)));
  EXPECT_FALSE(at::equal(frames_of(2, {9, 1, 2, 3}, 0), frames_of(2 + 65536, {9, 1, 2, 3}, 0)));
}

TEST(BatchMaker, BuffersArePagesAndBoundedByThePrefetch) {
  const Clips clips;
  BatchMaker maker(clips, 5, kRows);
  constexpr int kThreads = 3, kPrefetch = 4;
  Loader loader([&](const LoadKey& key) { return maker.make(clip_slice(key.step), {}); }, next_clip, kThreads,
                kPrefetch);
  for (LoadKey key; key.step < 300; key = next_clip(key)) {
    const Batch batch = loader.get(key);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(batch.tensors[0].data_ptr()) % 4096, 0u);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(batch.tensors[2].data_ptr()) % 512, 0u);
  }
  EXPECT_LE(maker.buffers_made(), kPrefetch + 3u) << "made ahead, the one in use, one that is being made, the compared";
}

// Held batches, and single views of them, must keep their numbers while threads fill hundreds of others.
TEST(BatchMaker, ABufferIsNotWrittenWhileAnybodyReadsIt) {
  for (const int threads : {0, 1, 8}) {
    const Clips clips;
    BatchMaker maker(clips, 5, kRows);
    Loader loader([&](const LoadKey& key) { return maker.make(clip_slice(key.step), {}); }, next_clip, threads, 2);
    std::deque<Batch> held;
    std::vector<std::pair<at::Tensor, int64_t>> views;
    for (LoadKey key; key.step < 200; key = next_clip(key)) {
      held.push_back(loader.get(key));
      if (key.step % 50 == 0) views.emplace_back(held.back().tensors[2].narrow(0, 1, 2), held.back().slice.samples[1]);
      expect_clips(held.front(), 5);
      if (held.size() > 3) held.pop_front();
    }
    for (const auto& [labels, sample] : views) ASSERT_EQ(labels[0].item<int64_t>(), sample * 10);
  }
}

TEST(BatchMaker, BatchesOutliveTheMaker) {
  Batch batch;
  {
    const Clips clips;
    BatchMaker maker(clips, 5, kRows);
    batch = maker.make(clip_slice(1), {});
  }
  expect_clips(batch, 5);
}

TEST(BatchMaker, ThreadsAndPrefetchChangeNoBit) {
  for (const int threads : {0, 1, 8})
    for (const int prefetch : {1, 7}) {
      const Clips clips;
      BatchMaker maker(clips, 9, kRows);
      Loader loader([&](const LoadKey& key) { return maker.make(clip_slice(key.step, key.step / 10), {}); }, next_clip,
                    threads, prefetch, /*most_bytes=*/1);
      for (LoadKey key; key.step < 60; key = next_clip(key)) expect_clips(loader.get(key), 9);
    }
}

TEST(BatchMaker, ASampleOfAnotherShapeOrTypeIsNamedWithWhatItHas) {
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) {
              write_rest(out);
              if (out.sample() == 19) out.write<float>(0, {3, 6});
              out.put<int64_t>(2, 0);
            }),
            "sample 19 of the data set 'clips': 'frames' is float32 [3, 6], declared is float32 [3, 5]");
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) { out.write<int64_t>(0); }),
            "sample 12 of the data set 'clips': 'frames' is written as int64, declared is float32 [3, 5]");
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) { out.write_padded<int32_t>(1, 8); }),
            "sample 12 of the data set 'clips': 'text' is int32 with 8 items, declared is int32 [7]");
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) {
              out.copy(0, at::zeros({5, 3}));
            }),
            "sample 12 of the data set 'clips': 'frames' is float32 [5, 3], declared is float32 [3, 5]");
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) { write_rest(out); }),
            "sample 12 of the data set 'clips': 'label' is not written, declared is int64 []");
}

TEST(BatchMaker, AnElementThatIsLeftOutIsFoundBeforeItHoldsAnotherSamplesNumber) {
  EXPECT_EQ(refusal([](SampleWriter& out, const RandomKey&) {
              const std::span<float> frames = out.write<float>(0);
              for (size_t i = 0; i < frames.size(); ++i)
                if (out.sample() != 19 || i != 11) frames[i] = 1;
              out.write_padded<int32_t>(1, 0);
              out.put<int64_t>(2, 0);
            }),
            "sample 19 of the data set 'clips': element 11 of 'frames' differs when the sample is loaded again");
  std::atomic<int64_t> calls = 0;
  EXPECT_EQ(refusal([&](SampleWriter& out, const RandomKey&) {
              write_rest(out);
              out.put<int64_t>(2, calls++);
            }),
            "sample 12 of the data set 'clips': element 0 of 'label' differs when the sample is loaded again");
}

TEST(BatchMaker, FieldsThatMakeNoSenseAreRefusedAtTheStart) {
  struct Odd : Clips {
    explicit Odd(std::vector<DataField> f) : declared(std::move(f)) {}
    std::vector<DataField> fields() const override { return declared; }
    std::vector<DataField> declared;
  };
  const auto what = [](std::vector<DataField> fields) -> std::string {
    const Odd odd(std::move(fields));
    try {
      BatchMaker maker(odd, 1, 2);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(what({{"a", at::kFloat, {3, 0}}}), "the data set 'clips' declares 'a' as [3, 0]");
  EXPECT_EQ(what({{"a", at::kFloat, {3}}, {"a", at::kFloat, {3}}}), "the data set 'clips' declares 'a' twice");
  EXPECT_EQ(what({{"", at::kFloat, {3}}}), "the data set 'clips' declares a field without a name (number 0)");
}

// A data set of the other kind, that makes tensors.
struct Made : Dataset {
  explicit Made(std::function<std::vector<at::Tensor>(int64_t)> make) : make_(std::move(make)) {}
  int64_t size() const override { return kClips; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    return make_(samples[0]);
  }
  std::function<std::vector<at::Tensor>(int64_t)> make_;
};

std::string refusal_of_loaded(std::function<std::vector<at::Tensor>(int64_t)> make) {
  const Made made(std::move(make));
  BatchMaker maker(made, 1, kRows);
  try {
    for (int64_t step = 0; step < 3; ++step) maker.make(clip_slice(step), {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchMaker, WhatLoadReturnsHasOneRowASampleAndTheSameShapeInEveryBatch) {
  EXPECT_EQ(refusal_of_loaded([](int64_t) { return std::vector{at::zeros({4, 2}), at::zeros({4}, at::kLong)}; }), "");
  EXPECT_EQ(refusal_of_loaded([](int64_t) {
              return std::vector{at::zeros({4, 2}), at::zeros({3}, at::kLong)};
            }),
            "tensor 1 that load() of the data set made is int64 [3], for 4 samples from sample 0 on");
  EXPECT_EQ(refusal_of_loaded([](int64_t) { return std::vector{at::zeros({})}; }),
            "tensor 0 that load() of the data set made is float32 [], for 4 samples from sample 0 on");
  EXPECT_EQ(refusal_of_loaded([](int64_t first) {
              return std::vector{at::zeros({4, first == 8 ? 3 : 2})};
            }),
            "tensor 0 that load() of the data set made is float32 [4, 3] in the batch that begins with sample 8, and "
            "float32 [4, 2] in the one that begins with sample 0");
  EXPECT_EQ(
      refusal_of_loaded([](int64_t first) { return std::vector{at::zeros({4}, first == 4 ? at::kInt : at::kLong)}; }),
      "tensor 0 that load() of the data set made is int32 [4] in the batch that begins with sample 4, and "
      "int64 [4] in the one that begins with sample 0");
  EXPECT_EQ(
      refusal_of_loaded([](int64_t first) { return std::vector<at::Tensor>(first == 4 ? 1 : 2, at::zeros({4})); }),
      "tensor 1 that load() of the data set made is missing in the batch that begins with sample 4, and "
      "float32 [4] in the one that begins with sample 0");
}

TEST(BatchMaker, LoadOfADataSetWithFieldsGivesTheSameSamples) {
  const Clips clips;
  BatchMaker maker(clips, 5, kRows);
  const Batch batch = maker.make(clip_slice(2), {});
  const std::vector<at::Tensor> loaded = clips.load(batch.slice.samples, {.seed = 5});
  for (size_t t = 0; t < 3; ++t) EXPECT_TRUE(at::equal(loaded[t], batch.tensors[t]));
}

}  // namespace
}  // namespace tandem
