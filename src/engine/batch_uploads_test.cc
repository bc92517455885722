#include "engine/batch_uploads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/batch_buffers.h"
#include "engine/batch_maker.h"
#include "engine/input_staging.h"
#include "engine/late_gpu.h"

namespace tandem {
namespace {

constexpr int kMicroBatches = 3;
constexpr size_t kBlockBytes = 1024;
using First = LateStreams::First;

// The executor's part: batches put one step ahead, a "graph" that reads the fixed addresses.
struct UploadedSteps {
  UploadedSteps() : uploads(device, std::make_unique<LateCopyStream>(streams), kMicroBatches, kBlockBytes) {}
  static int byte_of(int64_t step, int micro_batch) { return static_cast<int>((step * 7 + micro_batch) % 251); }

  // The buffer is dropped at once, and the next one may be written at once: put() holds what it needs.
  void put(int64_t step) {
    for (int m = 0; m < kMicroBatches; ++m) {
      const BatchBlock block = buffers->take();
      std::memset(block.memory.get(), byte_of(step, m), kBlockBytes);
      uploads.put(static_cast<int>(step % 2), m, 0, block.memory.get(), kBlockBytes, block.memory);
    }
  }
  void queue_step(int64_t step) {
    uploads.queue_up(static_cast<int>(step % 2));
    streams.queue_work([this, step] {
      for (int m = 0; m < kMicroBatches; ++m)
        for (size_t i = 0; i < kBlockBytes; ++i)
          wrong += uploads.on_gpu(m)[i] != static_cast<std::byte>(byte_of(step, m));
      ++ran;
    });
  }

  LateStreams streams;
  LateDevice device{streams};
  std::shared_ptr<BatchBuffers> buffers = BatchBuffers::of(kBlockBytes);
  BatchUploads uploads;
  int64_t wrong = 0, ran = 0;
};

TEST(BatchUploads, EveryStepReadsItsOwnBatchesHoweverTheStreamsRun) {
  for (const First first : {First::kWork, First::kUploads}) {
    UploadedSteps steps;
    steps.put(0);
    for (int64_t step = 0; step < 30; ++step) {
      steps.queue_step(step);
      if (first == First::kUploads) steps.streams.run_uploads();
      steps.put(step + 1);
      if (first == First::kUploads) steps.streams.run_uploads();
      steps.streams.run(first);
      ASSERT_EQ(steps.ran, step + 1);
      ASSERT_EQ(steps.wrong, 0) << "step " << step << (first == First::kWork ? ", uploads late" : ", work late");
    }
    EXPECT_EQ(steps.uploads.landing_buffers(), 1u) << "one step ahead needs no second one";
  }
}

// The host runs ahead of both streams, as it may: nothing runs before the end.
TEST(BatchUploads, StepsQueuedBeforeAnythingRunsReadTheirOwnBatches) {
  for (const First first : {First::kWork, First::kUploads}) {
    UploadedSteps steps;
    steps.put(0);
    for (int64_t step = 0; step < 6; ++step) {
      steps.queue_step(step);
      steps.put(step + 1);
    }
    steps.streams.run(first);
    EXPECT_EQ(steps.ran, 6);
    EXPECT_EQ(steps.wrong, 0);
  }
}

TEST(BatchUploads, TheNextStepsBatchesLandWhileTheGpuWorksOnThisOne) {
  UploadedSteps steps;
  steps.put(0);
  bool may_end = false;
  steps.uploads.queue_up(0);
  steps.streams.queue_work([] {}, [&] { return may_end; });  // a step that takes long
  steps.put(1);
  steps.streams.run(First::kWork);
  EXPECT_EQ(steps.streams.uploads_left(), 0u) << "waits for the step";
  EXPECT_EQ(steps.streams.work_left(), 1u);
  may_end = true;
  steps.queue_step(1);
  steps.streams.run(First::kWork);
  EXPECT_EQ(steps.wrong, 0);
}

TEST(BatchUploads, ABufferIsGivenBackOnceTheGpuHasReadItAndNotBefore) {
  UploadedSteps steps;
  steps.put(0);
  steps.uploads.queue_up(0);
  steps.buffers->take();
  EXPECT_EQ(steps.buffers->made(), kMicroBatches + 1u) << "none of those that wait for their upload";
  steps.streams.run_uploads();
  steps.uploads.queue_up(0);
  const std::vector<BatchBlock> taken{steps.buffers->take(), steps.buffers->take(), steps.buffers->take(),
                                      steps.buffers->take()};
  EXPECT_EQ(steps.buffers->made(), kMicroBatches + 1u) << "all of them";
}

TEST(BatchUploads, TwoStepsMayBePutAheadAndAStepMayBeQueuedAgain) {
  for (const First first : {First::kWork, First::kUploads}) {
    UploadedSteps steps;
    steps.put(0);
    for (int64_t step = 0; step < 10; ++step) {
      steps.put(step + 1);
      steps.queue_step(step);
      steps.queue_step(step);  // the members changed: the phase is run again
      steps.streams.run(first);
      ASSERT_EQ(steps.wrong, 0) << step;
    }
    EXPECT_EQ(steps.uploads.landing_buffers(), 2u);
  }
  UploadedSteps steps;
  EXPECT_THROW(steps.uploads.queue_up(1), std::logic_error);
}

TEST(BatchUploads, UploadsInFlightAreWaitedForBeforeTheirMemoryGoes) {
  LateStreams streams;
  LateDevice device(streams);
  const auto buffers = BatchBuffers::of(kBlockBytes);
  {
    BatchUploads uploads(device, std::make_unique<LateCopyStream>(streams), 1, kBlockBytes);
    const BatchBlock block = buffers->take();
    uploads.put(0, 0, 0, block.memory.get(), kBlockBytes, block.memory);
    EXPECT_EQ(streams.uploads_left(), 2u) << "the copy and its event";
  }
  EXPECT_EQ(streams.uploads_left(), 0u);
}

// ---- through InputStaging and BatchMaker ----

constexpr int64_t kPictureRows = 4;

struct LargePictures : Dataset {
  int64_t size() const override { return 64; }
  std::vector<DataField> fields() const override {
    return {{"picture", at::kByte, {200, 333}}, {"label", at::kLong, {}}};
  }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    std::ranges::fill(out.write<uint8_t>(0), static_cast<uint8_t>(out.sample() + 1));
    out.put<int64_t>(1, out.sample() * 3);
  }
};

Slice picture_slice(int64_t step, int micro_batch) {
  Slice slice{.real = 1 + step % kPictureRows, .real_in_update = kPictureRows};
  for (int64_t row = 0; row < kPictureRows; ++row) slice.samples.push_back((step * 9 + micro_batch * 4 + row) % 64);
  return slice;
}

struct UseLateDevice {
  explicit UseLateDevice(Device& device) { use_device(device); }
  ~UseLateDevice() { use_device(cpu_device()); }
};

// Steps of an executor whose graph copies its inputs; compared with what was put.
void expect_inputs(bool pinned, First first) {
  LateStreams streams;
  LateDevice late(streams);
  const UseLateDevice use(late);
  const LargePictures data;
  int pins_left = 4;  // then the limit is reached: later buffers are not pinned
  BatchMaker maker(data, 1, kPictureRows,
                   pinned ? HostPinning{[&](void*, size_t) { return pins_left-- > 0; }, [](void*) {}} : HostPinning());
  const auto inputs = [&](int64_t step, int m, const Batch& batch) {
    std::vector<at::Tensor> all = batch.tensors;
    all.push_back(batch.weight);
    all.push_back(at::full({3}, static_cast<double>(step * 10 + m)));  // Recipe::inputs()
    return all;
  };
  std::unique_ptr<InputStaging> staging;
  const auto put = [&](int64_t step) {
    for (int m = 0; m < kMicroBatches; ++m) {
      const Batch batch = maker.make(picture_slice(step, m), {});
      const std::vector<at::Tensor> all = inputs(step, m, batch);
      if (!staging)
        staging = std::make_unique<InputStaging>(kMicroBatches, all, &batch, std::make_unique<LateCopyStream>(streams));
      ASSERT_TRUE(staging->fits(all));
      staging->put(static_cast<int>(step % 2), m, {.seed = 5, .step = static_cast<uint64_t>(step)}, all, &batch);
    }
  };
  put(0);
  EXPECT_EQ(staging->uploads_batches(), pinned);
  EXPECT_EQ(maker.take_note(), "");
  BatchMaker again(data, 1, kPictureRows);
  for (int64_t step = 0; step < 12; ++step) {
    staging->put(static_cast<int>(step % 2), UpdateParams{.loss_scale = 8});
    staging->queue_up(static_cast<int>(step % 2));
    std::vector<std::vector<at::Tensor>> seen;
    streams.queue_work([&] {
      for (int m = 0; m < kMicroBatches; ++m) {
        seen.emplace_back();
        for (const at::Tensor& tensor : staging->tensors(m)) seen.back().push_back(tensor.clone());
        EXPECT_EQ(staging->key(m)->step, static_cast<uint64_t>(step));
      }
    });
    put(step + 1);
    streams.run(first);
    for (int m = 0; m < kMicroBatches; ++m) {
      const std::vector<at::Tensor> expected = inputs(step, m, again.make(picture_slice(step, m), {}));
      ASSERT_EQ(seen.at(m).size(), expected.size());
      for (size_t t = 0; t < expected.size(); ++t) ASSERT_TRUE(at::equal(seen[m][t], expected[t])) << step << " " << t;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(staging->tensors(m)[1].data_ptr()) % 64, 0u);
    }
  }
  if (!pinned) return;
  EXPECT_NE(maker.take_note().find("refused to pin 0.3 MB"), std::string::npos);
  EXPECT_EQ(maker.take_note(), "") << "once";
}

TEST(InputStaging, PinnedBatchesAreUploadedFromWhereTheyLieAndNothingElseChanges) {
  for (const First first : {First::kWork, First::kUploads})
    for (const bool pinned : {true, false}) expect_inputs(pinned, first);
}

TEST(BatchBuffers, EachIsPinnedOnceAndUnpinnedBeforeItIsFreed) {
  std::multiset<void*> pinned;
  int pins = 0;
  auto buffers = BatchBuffers::of(5000, {[&](void* host, size_t bytes) {
                                           EXPECT_EQ(bytes, 8192u);
                                           std::memset(host, 1, bytes);
                                           pinned.insert(host);
                                           return ++pins <= 3;
                                         },
                                         [&](void* host) {
                                           EXPECT_EQ(static_cast<std::byte*>(host)[8191], std::byte{1});
                                           EXPECT_EQ(pinned.erase(host), 1u);
                                         }});
  for (int round = 0; round < 3; ++round) {
    const BatchBlock a = buffers->take(), b = buffers->take(), c = buffers->take();
    EXPECT_TRUE(a.pinned && b.pinned && c.pinned);
  }
  EXPECT_EQ(pins, 3);
  EXPECT_FALSE(buffers->pin_refused());
  std::vector<BatchBlock> five;
  for (int i = 0; i < 5; ++i) five.push_back(buffers->take());
  EXPECT_EQ(std::ranges::count_if(five, &BatchBlock::pinned), 3);
  EXPECT_EQ(pins, 4) << "refused once: not asked again";
  EXPECT_TRUE(buffers->pin_refused());
  buffers.reset();
  five.clear();
  EXPECT_EQ(pinned.size(), 1u) << "all but the one that was refused";
}

}  // namespace
}  // namespace tandem
