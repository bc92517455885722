// Batches on their way through captured steps: large ones that are uploaded late, and row numbers of resident data.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <deque>
#include <map>

#include "engine/determinism.h"
#include "engine/emulated_gpu.h"
#include "engine/snapshot.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"

namespace tandem {
namespace {

constexpr int64_t kFrameBytes = 70'000;  // 4 rows are pinned and uploaded by themselves

// Uploads run at the last moment: when work needs them.
class LastMomentUploads : public CopyStream {
 public:
  void upload(void* dst, const void* host, size_t bytes) override {
    queue_.push_back([=] { std::memcpy(dst, host, bytes); });
  }
  void record(int) override {}
  bool done(int) override { return queue_.empty(); }
  void work_waits_for(int) override { wait(); }
  void uploads_wait_for_work() override {}  // work runs at once
  void wait() noexcept override {
    for (; !queue_.empty(); queue_.pop_front()) queue_.front()();
  }

 private:
  std::deque<std::function<void()>> queue_;
};

class LastMomentGpu : public EmulatedGpu {
 public:
  std::unique_ptr<CopyStream> copy_stream() override { return std::make_unique<LastMomentUploads>(); }
};

struct FrameSettings : RecipeSettings {
  bool stays = false, augmented = false;
  FrameSettings() {
    shards = 6;
    batch_size = 24;
    seed = 11;
    loader.threads = 3;
    nan.rollback_every = 0;
  }
};

struct Frames : Dataset {
  explicit Frames(const FrameSettings& s) : settings(s) {}
  int64_t size() const override { return 100; }  // 4 x 24 and a remainder
  bool resident() const override { return settings.stays; }
  std::vector<DataField> fields() const override {
    return {{"frame", at::kByte, {kFrameBytes}}, {"label", at::kLong, {}}};
  }
  void load_into(SampleWriter& out, const RandomKey& random) const override {
    const uint32_t own = static_cast<uint32_t>(out.sample()) * 2654435761u;
    const uint32_t shift = settings.augmented ? random_u32(random, 0) : 0;
    const std::span<uint8_t> frame = out.write<uint8_t>(0);
    for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>((own + shift) >> (i % 24));
    out.put<int64_t>(1, out.sample() % 3);
  }
  const FrameSettings& settings;
};

struct FrameRecipe : SupervisedRecipe {
  explicit FrameRecipe(const FrameSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override {
    return net = std::make_shared<torch::nn::LinearImpl>(70, 3);
  }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Frames>(settings); }
  at::Tensor forward(const Batch& batch, ShardContext&) override {
    return net->forward(batch.tensors[0].view({-1, 70, 1000}).to(at::kFloat).mean(2) / 256);
  }
  const FrameSettings& settings;
  std::shared_ptr<torch::nn::LinearImpl> net;
};

std::map<std::string, at::Tensor> state_of(TrainLoop& loop) {
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& t : loop.state().model_tensors()) all[t.name] = t.tensor;
  for (const NamedTensor& t : loop.state().replicated_state()) all["replicated " + t.name] = t.tensor;
  return all;
}

std::string trained_frames(const FrameSettings& settings, EmulatedGpu* gpu) {
  TrainLoop loop(settings, std::make_unique<FrameRecipe>(settings),
                 ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  if (gpu)
    gpu->capture_by([&loop](const std::function<void()>& work) {
      std::map<std::string, at::Tensor> before;
      for (const auto& [name, tensor] : state_of(loop)) before[name] = tensor.clone();
      work();
      at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : state_of(loop)) tensor.copy_(before.at(name));
    });
  for (int step = 0; step < 40; ++step) {
    loop.step();
    EXPECT_EQ(loop.note(), "");
  }
  return digest_of(loop);
}

// The digest on a GPU that captures.
std::string captured_frames(const FrameSettings& settings, int* replays) {
  auto made = std::make_unique<LastMomentGpu>();
  LastMomentGpu* const gpu = made.get();
  use_gpu(std::move(made));
  const std::string digest = trained_frames(settings, gpu);
  *replays = gpu->replays;
  use_gpu(nullptr);
  return digest;
}

TEST(CapturedData, LargeBatchesUploadedAtTheLastMomentTrainToTheSameBits) {
  set_determinism();
  FrameSettings settings;
  for (const bool augmented : {false, true})
    for (const int64_t accumulation : {1, 2}) {
      settings.augmented = augmented;
      settings.accumulation = accumulation;
      settings.batch_size = 24 * accumulation;
      int replays = 0;
      EXPECT_EQ(captured_frames(settings, &replays), trained_frames(settings, nullptr));
      EXPECT_GE(replays, 20);
    }
}

TEST(CapturedData, RowsOfResidentDataAreGatheredInsideTheGraph) {
  set_determinism();
  FrameSettings settings;
  const std::string ordinary = trained_frames(settings, nullptr);
  settings.stays = true;
  int replays = 0;
  EXPECT_EQ(captured_frames(settings, &replays), ordinary);
  EXPECT_GE(replays, 20);
}

}  // namespace
}  // namespace tandem
