#include "engine/resident_data.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/cores.h"
#include "base/errors.h"
#include "engine/batch_maker.h"
#include "engine/gpu_device.h"
#include "engine/loader.h"
#include "hardware/machine.h"
#include "nn/here.h"

namespace tandem {
namespace {

constexpr int64_t kProvedSamples = 16;

size_t resident_row_bytes(const DataField& field) {
  return static_cast<size_t>(elements_of(field)) * c10::elementSize(field.dtype);
}

// Rows are gathered word by word: the wider, the faster.
at::ScalarType resident_word(size_t row_bytes) {
  return row_bytes % 8 == 0 ? at::kLong : row_bytes % 4 == 0 ? at::kInt : row_bytes % 2 == 0 ? at::kShort : at::kByte;
}

at::Tensor as_words(const at::Tensor& field, size_t row_bytes) {
  const at::ScalarType word = resident_word(row_bytes);
  return at::from_blob(field.data_ptr(), {field.size(0), static_cast<int64_t>(row_bytes / c10::elementSize(word))},
                       at::TensorOptions(word));
}

// The same data, which says that it is being loaded: a sample may take long.
class LoadingData : public Dataset {
 public:
  LoadingData(const Dataset& data, const std::function<void()>& alive) : data_(data), alive_(alive) {}
  int64_t size() const override { return data_.size(); }
  std::string name() const override { return data_.name(); }
  std::vector<DataField> fields() const override { return data_.fields(); }
  void load_into(SampleWriter& out, const RandomKey& random) const override {
    if (alive_) alive_();
    data_.load_into(out, random);
  }

 private:
  const Dataset& data_;
  const std::function<void()>& alive_;
};

// That samples are the same in two epochs, with the random streams of each.
void prove_constant(const Dataset& data, const std::vector<DataField>& fields, uint64_t seed) {
  const int64_t count = std::min(kProvedSamples, data.size());
  BatchMaker maker(data, seed, count);
  Slice slice{.epoch = 0, .real = count, .real_in_update = count};
  for (int64_t i = 0; i < count; ++i) slice.samples.push_back(count == 1 ? 0 : i * (data.size() - 1) / (count - 1));
  const Batch first = maker.make(slice, {});
  slice.epoch = 1;
  const Batch second = maker.make(slice, {});
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto *a = static_cast<const std::byte*>(first.tensors[f].const_data_ptr()),
               *b = static_cast<const std::byte*>(second.tensors[f].const_data_ptr());
    const size_t bytes = first.tensors[f].nbytes(), row = resident_row_bytes(fields[f]);
    const size_t same = static_cast<size_t>(std::mismatch(a, a + bytes, b).first - a);
    if (same == bytes) continue;
    throw ConfigError(
        fmt::format("sample {} of {}: element {} of '{}' differs from epoch to epoch", slice.samples[same / row],
                    data_text(data), same % row / c10::elementSize(fields[f].dtype), fields[f].name),
        "the data set says resident(): its samples are loaded once and serve in every epoch",
        "let load_into() neither draw from `random` nor follow the epoch, and augment in forward(), with "
        "context.random(site); or leave resident() out");
  }
}

}  // namespace

size_t ResidentData::bytes_of(const Dataset& data) {
  size_t row = 0;
  for (const DataField& field : data.fields()) row += resident_row_bytes(field);
  return row * static_cast<size_t>(data.size());
}

ResidentData::ResidentData(const Dataset& data, uint64_t seed, int threads, const std::function<void()>& alive,
                           size_t chunk_bytes)
    : fields_(data.fields()) {
  if (fields_.empty())
    throw ConfigError(fmt::format("{} says resident() but declares no fields", data_text(data)),
                      "what lies on the device has a fixed type and shape",
                      "declare fields() and load_into(), or leave resident() out");
  const LoadingData loading(data, alive);
  prove_constant(loading, fields_, seed);
  const int64_t samples = data.size();
  const size_t row_bytes = std::max<size_t>(1, bytes_of(data) / static_cast<size_t>(samples));
  const int64_t chunk = std::clamp<int64_t>(static_cast<int64_t>(chunk_bytes / row_bytes), 1, samples);
  for (const DataField& field : fields_) {
    const size_t bytes = resident_row_bytes(field);
    const at::ScalarType word = resident_word(bytes);
    rows_.push_back(at::empty({samples, static_cast<int64_t>(bytes / c10::elementSize(word))}, here(word)));
  }
  BatchMaker maker(loading, seed, chunk);
  const auto make = [&](const LoadKey& key) {  // `step`: which chunk; the last one is filled up from the front
    Slice slice{.real = std::min(chunk, samples - key.step * chunk), .real_in_update = chunk};
    if (slice.real <= 0) return Batch();
    for (int64_t i = 0; i < chunk; ++i) slice.samples.push_back((key.step * chunk + i) % samples);
    return maker.make(std::move(slice), {});
  };
  Loader loader(
      make,
      [](const LoadKey& key) {
        return LoadKey{key.step + 1, 0, 0};
      },
      std::max(1, threads), 2 * std::max(1, threads));
  at::NoGradGuard no_grad;
  for (int64_t first = 0; first < samples; first += chunk) {
    const Batch batch = loader.get({first / chunk, 0, 0});
    for (size_t f = 0; f < fields_.size(); ++f)
      rows_[f]
          .narrow(0, first, batch.slice.real)
          .copy_(as_words(batch.tensors[f], resident_row_bytes(fields_[f])).narrow(0, 0, batch.slice.real));
  }
}

void ResidentData::expand(Batch& batch) const {
  at::NoGradGuard no_grad;
  const at::Tensor numbers = batch.tensors.at(0);
  batch.tensors.clear();
  for (size_t f = 0; f < fields_.size(); ++f) {
    std::vector<int64_t> sizes{numbers.size(0)};
    sizes.insert(sizes.end(), fields_[f].shape.begin(), fields_[f].shape.end());
    batch.tensors.push_back(rows_[f].index_select(0, numbers).view(fields_[f].dtype).view(sizes));
  }
  batch.resident.reset();
}

size_t room_for_resident(const GpuDevice* gpu) {
  if (gpu) return gpu->free_bytes() / 2;
  const uint64_t free = usable_memory_bytes(memory_facts()).value_or(0) / 2;
  return static_cast<size_t>(free / static_cast<uint64_t>(std::max(1, usable_cores() / std::max(1, worker_cores()))));
}

void expand_resident(Batch& batch) {
  if (const std::shared_ptr<const ResidentData> resident = batch.resident) resident->expand(batch);
}

}  // namespace tandem
