// bench/gpu_data.cc -- how long a GPU waits for data: a step that needs 300 MB of fresh bytes, beside the same step
// without.
//
// fresh: samples are written by loader threads into pinned memory, uploaded on a copy stream and read by a captured
// step. constant: the same model on one batch that lies on the GPU for good. resident: the samples of `fresh`, all on
// the GPU (Dataset::resident), gathered there; it must end with the weights of `fresh`. Blocks of steps take turns.
// The share of a step spent waiting for data is (fresh - constant) / fresh: it has the loader, the upload, the copy on
// the GPU and what the uploads take of its memory's bandwidth. Goal: below 5 %. One JSON line.
//     gpu_data [LAYERS] [LOADER THREADS]       layers of 1024 x 1024 that each row goes through; 8 is about 45 ms on an
//                                              H200. Threads: -1, the default, leaves the choice to the engine
// It needs a GPU and libtandem_cuda.so beside it.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "nn/here.h"

namespace tandem {
namespace {

// 512 samples of 768 x 768 bytes are a batch: 302 MB.
constexpr int64_t kShards = 8, kBatch = 512, kSide = 768, kWidth = 1024, kSamples = 16 * kBatch;
constexpr size_t kSampleBytes = static_cast<size_t>(kSide * kSide);

enum class Data { kFresh, kConstant, kResident };

struct Settings : RecipeSettings {
  Settings(Data data, int64_t layers, int64_t threads) : data(data), layers(layers) {
    shards = kShards;
    batch_size = kBatch;
    precision = "bf16";
    nan.rollback_every = 0;
    loader.threads = threads;
  }
  Data data;
  int64_t layers;
};

// A sample is a piece of a table, from a place of its own: fresh bytes at the cost of a copy.
struct Pictures : Dataset {
  explicit Pictures(Data data) : data(data), table(size_t{64} << 20) {
    for (size_t i = 0; i < table.size(); i += sizeof(uint64_t)) {
      const uint64_t bits = (i + 1) * 0x9E3779B97F4A7C15u;
      std::memcpy(table.data() + i, &bits, sizeof(bits));
    }
  }
  int64_t size() const override { return kSamples; }
  std::string name() const override { return "pictures"; }
  std::vector<DataField> fields() const override {
    const DataField label{"label", at::kLong, {}};
    if (data == Data::kConstant) return {label};
    return {{"picture", at::kByte, {kSide, kSide}}, label};
  }
  bool resident() const override { return data == Data::kResident; }
  void load_into(SampleWriter& out, const RandomKey&) const override {
    if (data != Data::kConstant) {
      const size_t first = static_cast<size_t>(out.sample()) * 7919 % (table.size() - kSampleBytes);
      std::memcpy(out.write<uint8_t>(0).data(), table.data() + first, kSampleBytes);
    }
    out.put<int64_t>(data == Data::kConstant ? 0 : 1, out.sample() % 10);
  }
  Data data;
  std::vector<uint8_t> table;
};

struct Net : torch::nn::Module {
  explicit Net(int64_t layers) : in(register_module("in", torch::nn::Linear(kSide, kWidth))) {
    for (int64_t i = 0; i < layers; ++i)
      hidden.push_back(register_module(fmt::format("hidden{}", i), torch::nn::Linear(kWidth, kWidth)));
    out = register_module("out", torch::nn::Linear(kWidth, 10));
  }
  at::Tensor forward(const at::Tensor& pictures) {
    at::Tensor x = at::relu(in(pictures.to(at::kBFloat16) / 256));
    for (torch::nn::Linear& layer : hidden) x = at::relu(layer(x));
    return out(x.mean(1));
  }
  torch::nn::Linear in;
  std::vector<torch::nn::Linear> hidden;
  torch::nn::Linear out{nullptr};
};

struct PictureRecipe : SupervisedRecipe {
  explicit PictureRecipe(const Settings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net = std::make_shared<Net>(settings.layers); }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Pictures>(settings.data); }
  at::Tensor forward(const Batch& batch, ShardContext&) override {
    if (settings.data != Data::kConstant) return net->forward(batch.tensors[0]);
    if (!constant.defined()) constant = at::full({kBatch / kShards, kSide, kSide}, 77, here(at::kByte));
    return net->forward(constant);
  }
  at::Tensor row_losses(const at::Tensor& output, const Batch& batch) override {
    return torch::nn::functional::cross_entropy(
        output, batch.tensors.back(), torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
  }
  at::Tensor row_correct(const at::Tensor& output, const Batch& batch) override {
    return output.argmax(1) == batch.tensors.back();
  }
  const Settings& settings;
  std::shared_ptr<Net> net;
  at::Tensor constant;
};

// One training with its times.
struct Measured {
  Measured(Data data, int64_t layers, int64_t threads)
      : settings(data, layers, threads),
        loop(settings, std::make_unique<PictureRecipe>(settings), ShardPlan::balance(kShards, std::vector{1.0})) {}
  void step() {
    loop.step();
    for (const std::string& note : loop.take_notes(true)) fmt::print(stderr, "{}\n", note);
  }
  // The first steps of a block find batches that were made while the other one ran: they don't count.
  void block() {
    constexpr int kAhead = 8, kCounted = 24;
    for (int i = 0; i < kAhead; ++i) step();
    const double waited = loop.load_seconds(), begin = monotonic_seconds();
    for (int i = 0; i < kCounted; ++i) {
      const double step_begin = monotonic_seconds();
      step();
      ms.push_back((monotonic_seconds() - step_begin) * 1e3);
    }
    load_seconds += loop.load_seconds() - waited;
    seconds += monotonic_seconds() - begin;
  }
  double mean_ms() const { return seconds / static_cast<double>(ms.size()) * 1e3; }
  double median_ms() {
    std::ranges::nth_element(ms, ms.begin() + static_cast<int64_t>(ms.size() / 2));
    return ms[ms.size() / 2];
  }
  Settings settings;
  TrainLoop loop;
  std::vector<double> ms;
  double load_seconds = 0, seconds = 0;
};

std::vector<std::byte> weights_of(TrainLoop& loop) {
  std::vector<std::byte> weights(loop.state().parameters().size_bytes());
  device().to_host(weights.data(), loop.state().parameters().data(), weights.size());
  return weights;
}

int measure(int64_t layers, int64_t threads) {
  Measured fresh(Data::kFresh, layers, threads), constant(Data::kConstant, layers, threads),
      resident(Data::kResident, layers, threads);
  for (int i = 0; i < 40; ++i) {  // captured and compared by then, the comparison at step 32 included
    fresh.step();
    constant.step();
    resident.step();
  }
  for (int block = 0; block < 4; ++block) {
    constant.block();
    fresh.block();
    resident.block();
  }
  const bool same = weights_of(fresh.loop) == weights_of(resident.loop);
  const double with = fresh.median_ms(), without = constant.median_ms(), bytes = kBatch * kSampleBytes;
  const double waits = std::max(0.0, 1 - without / with);
  const bool good = waits < 0.05 && same;
  fmt::print(
      "{{\"part\": \"data\", \"megabytes\": {:.0f}, \"layers\": {}, \"fresh_ms\": {:.2f}, \"fresh_mean_ms\": {:.2f}, "
      "\"constant_ms\": {:.2f}, \"constant_mean_ms\": {:.2f}, \"resident_ms\": {:.2f}, \"waits_share\": {:.4f}, "
      "\"loop_waits_share\": {:.4f}, \"gigabytes_per_s\": {:.2f}, \"loader_threads\": {}, \"same_weights\": {}, "
      "\"good\": {}}}\n",
      bytes * 1e-6, layers, with, fresh.mean_ms(), without, constant.mean_ms(), resident.median_ms(), waits,
      fresh.load_seconds / fresh.seconds, bytes / with * 1e-6,
      loader_size(threads, -1, /*on_gpu=*/true, worker_cores()).threads, same, good);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    tandem::open_gpu(0.9);
  } catch (const tandem::Error& error) {
    fmt::print("left out: {} ({})\n", error.what(), error.why());
    return 0;
  }
  tandem::set_determinism();
  return tandem::measure(argc > 1 ? std::atoll(argv[1]) : 8, argc > 2 ? std::atoll(argv[2]) : -1);
}
