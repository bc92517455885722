// checkpoint/sample.h -- small checkpoints whose every byte follows from run and step; for tests only.
#pragma once

#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/temp_dir.h"
#include "checkpoint/store.h"

namespace tandem {

// Where fsync costs nothing, if the machine has such a place: these tests call it thousands of times.
inline std::filesystem::path quick_dir() {
  return access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
}

// Owns the bytes that its contents() shows.
class Sample {
 public:
  explicit Sample(std::int64_t step, const std::string& run_id = "tiny-1", std::size_t scale = 1) {
    contents_.step = step;
    contents_.run_id = run_id;
    contents_.recipe = "tiny";
    contents_.settings = {{"seed", 7}, {"optimizer.learning_rate", 0.001}};
    contents_.shards = 24;
    contents_.kind = "cpu";
    contents_.versions = {{"tandem", "0.1.0"}};
    contents_.scalars = {{"samples", step * 64}, {"loss_scale", 1.5}};
    add(contents_.model, "fc1.weight", DType::kF32, {3, static_cast<std::int64_t>(4 * scale)});
    add(contents_.model, "fc1.bias", DType::kF32, {4});
    add(contents_.model, "norm.count", DType::kI64, {});
    add(contents_.state, "adam.m", DType::kF32, {static_cast<std::int64_t>(16 * scale)});
    add(contents_.state, "shard.0.mask", DType::kBool, {5});
    add(contents_.state, "shard.1.ring", DType::kU8, {0, 4});
  }
  Sample(const Sample&) = delete;
  const CheckpointContents& contents() const { return contents_; }
  CheckpointContents& contents() { return contents_; }

  // "" or the first thing in which `loaded` is not this sample.
  std::string difference(const LoadedCheckpoint& loaded) const {
    if (loaded.manifest.step != contents_.step) return "step " + std::to_string(loaded.manifest.step);
    if (loaded.manifest.run_id != contents_.run_id) return "run " + loaded.manifest.run_id;
    if (loaded.manifest.scalars != contents_.scalars || loaded.manifest.settings != contents_.settings) return "values";
    const std::string in_model = difference(loaded.model, contents_.model);
    return in_model.empty() ? difference(loaded.state, contents_.state) : in_model;
  }

 private:
  void add(std::vector<TensorView>& to, const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
    std::size_t bytes = dtype_size(dtype);
    for (std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    auto& buffer = buffers_.emplace_back(std::make_unique<std::vector<std::byte>>(bytes));
    std::uint32_t value =
        static_cast<std::uint32_t>(contents_.step * 2654435761u + contents_.run_id.back() + 977 * buffers_.size());
    for (std::byte& byte : *buffer) byte = static_cast<std::byte>((value = value * 1664525 + 1013904223) >> 24);
    if (dtype == DType::kBool)
      for (std::byte& byte : *buffer) byte &= std::byte{1};
    to.push_back({name, dtype, std::move(shape), *buffer});
  }
  static std::string difference(const SafetensorsFile& file, const std::vector<TensorView>& expected) {
    if (file.tensors().size() != expected.size()) return "number of tensors";
    for (const TensorView& tensor : expected) {
      const TensorView* found = file.find(tensor.name);
      if (!found || found->dtype != tensor.dtype || found->shape != tensor.shape) return tensor.name;
      if (!std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        return "bytes of " + tensor.name;
    }
    return "";
  }
  CheckpointContents contents_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> buffers_;
};

// A folder with checkpoints of steps 100 and 200.
struct TwoGenerations {
  TempDir dir{quick_dir()};
  Sample first{100}, second{200};
  TwoGenerations() {
    CheckpointStore store(FileSystem::real(), dir.path(), 2);
    store.save(first.contents());
    store.save(second.contents());
  }
  CheckpointStore reader() const { return CheckpointStore::reader(FileSystem::real(), dir.path()); }
};

}  // namespace tandem
