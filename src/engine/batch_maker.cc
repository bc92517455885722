#include "engine/batch_maker.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "engine/resident_data.h"

namespace tandem {
namespace {

constexpr size_t kFieldAlign = 512, kMostFields = 63;
constexpr size_t kPinFrom = size_t{256} << 10;  // below it, an upload of its own costs more than a copy by the CPU
constexpr int kFirstFill = 0xA5, kSecondFill = 0x5A;  // no bit in common

void refuse_field(const std::string& data, const std::string& what) {
  throw ConfigError(fmt::format("{} {}", data, what), "every sample has the same fields, of fixed type and shape",
                    "correct its fields()");
}

void check_fields(const std::string& data, const std::vector<DataField>& fields) {
  if (fields.size() > kMostFields)
    refuse_field(data, fmt::format("declares {} fields; {} is the most", fields.size(), kMostFields));
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].name.empty()) refuse_field(data, fmt::format("declares a field without a name (number {})", f));
    if (std::ranges::any_of(fields[f].shape, [](int64_t n) { return n <= 0; }))
      refuse_field(data, fmt::format("declares '{}' as {}", fields[f].name, shape_text(fields[f].shape)));
    for (size_t other = 0; other < f; ++other)
      if (fields[other].name == fields[f].name) refuse_field(data, fmt::format("declares '{}' twice", fields[f].name));
  }
}

at::Tensor weights_of(const Slice& slice) {
  at::Tensor weight = at::empty({static_cast<int64_t>(slice.samples.size())}, at::kFloat);
  float* const rows = weight.data_ptr<float>();  // each operation of libtorch would cost microseconds
  std::fill(rows, rows + slice.real, 1.0f);
  std::fill(rows + slice.real, rows + weight.numel(), 0.0f);
  return weight;
}

std::vector<int64_t> with_rows(int64_t rows, const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes{rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

}  // namespace

std::string data_text(const Dataset& data) {
  return data.name().empty() ? "the data set" : fmt::format("the data set '{}'", data.name());
}

// ---- Dataset's defaults ----

void Dataset::load_into(SampleWriter&, const RandomKey&) const {
  throw ConfigError(data_text(*this) + " declares fields but has no load_into()", "nothing would fill them",
                    "override load_into(), or leave fields() out and override load()");
}

std::vector<at::Tensor> Dataset::load(std::span<const int64_t> samples, const RandomKey& random) const {
  const std::vector<DataField> declared = fields();
  const std::string text = data_text(*this);
  if (declared.empty())
    throw ConfigError(text + " has neither load() nor fields()", "one of them says what a sample is",
                      "override load(), or fields() and load_into()");
  check_fields(text, declared);
  std::vector<at::Tensor> tensors;
  for (const DataField& field : declared)
    tensors.push_back(at::empty(with_rows(static_cast<int64_t>(samples.size()), field.shape), field.dtype));
  std::vector<std::byte*> memory(declared.size());
  for (size_t row = 0; row < samples.size(); ++row) {
    for (size_t f = 0; f < declared.size(); ++f)
      memory[f] = static_cast<std::byte*>(tensors[f].data_ptr()) + row * (tensors[f].nbytes() / samples.size());
    SampleWriter out(declared, memory, 0, samples[row], text);
    load_into(out, sample_key(random.seed, 0, samples[row]));
    out.check_complete();
  }
  return tensors;
}

// ---- BatchMaker ----

BatchMaker::BatchMaker(const Dataset& data, uint64_t seed, int64_t rows, HostPinning pinning)
    : data_(data), text_(data_text(data)), seed_(seed), rows_(rows), fields_(data.fields()) {
  check_fields(text_, fields_);
  if (!fields_.empty()) lay_out(std::move(pinning));
}

void BatchMaker::lay_out(HostPinning pinning) {
  const auto aligned = [](size_t bytes) { return (bytes + kFieldAlign - 1) / kFieldAlign * kFieldAlign; };
  size_t end = 0;
  for (const DataField& field : fields_) {
    offsets_.push_back(end);
    row_bytes_.push_back(static_cast<size_t>(elements_of(field)) * c10::elementSize(field.dtype));
    end = aligned(end + static_cast<size_t>(rows_) * row_bytes_.back());
  }
  weight_offset_ = end;
  const size_t bytes = end + static_cast<size_t>(rows_) * sizeof(float);
  buffers_ = BatchBuffers::of(bytes, bytes >= kPinFrom ? std::move(pinning) : HostPinning());
}

std::string BatchMaker::take_note() {
  if (reported_ || !buffers_ || !buffers_->pin_refused()) return "";
  reported_ = true;
  return fmt::format(
      "the system refused to pin {:.1f} MB of memory for a batch of {}: copies to the GPU are slower, the result is "
      "the "
      "same (raise the limit on locked memory, `ulimit -l`, or lower loader.prefetch)",
      static_cast<double>(buffers_->bytes()) * 1e-6, text_);
}

Batch BatchMaker::make(Slice slice, const RandomKey& random) {
  Batch batch;
  batch.slice = std::move(slice);
  if (static_cast<int64_t>(batch.slice.samples.size()) != rows_) throw std::logic_error("a slice of another size");
  if (resident_)
    number_rows(batch);
  else if (fields_.empty())
    load_tensors(batch, random);
  else
    use_buffer(batch);
  return batch;
}

// ---- resident data: row numbers ----

std::string BatchMaker::load_resident(int threads, size_t room, const std::function<void()>& alive) {
  looked_for_room_ = true;
  if (!data_.resident() || data_.size() == 0) return "";
  if (const size_t needed = ResidentData::bytes_of(data_); needed > room)
    return fmt::format(
        "{} is loaded batch by batch, though it is resident(): it takes {:.1f} GB, and {:.1f} may be used", text_,
        static_cast<double>(needed) * 1e-9, static_cast<double>(room) * 1e-9);
  resident_ = std::make_shared<const ResidentData>(data_, seed_, threads, alive);
  return "";
}

void BatchMaker::number_rows(Batch& batch) const {
  batch.resident = resident_;
  batch.tensors = {at::empty({rows_}, at::kLong)};
  std::ranges::copy(batch.slice.samples, batch.tensors[0].data_ptr<int64_t>());
  batch.weight = weights_of(batch.slice);
}

// ---- fields: samples written into a buffer ----

void BatchMaker::use_buffer(Batch& batch) {
  batch.block = buffers_->take();
  const std::shared_ptr<std::byte>& buffer = batch.block.memory;
  const bool first = proving_.exchange(false);
  if (first) std::memset(buffer.get(), kFirstFill, buffers_->bytes());
  write_samples(batch.slice, buffer.get());
  if (first) prove(batch.slice, buffer.get());
  const auto tensor_at = [&](size_t offset, at::IntArrayRef sizes, at::ScalarType dtype) {
    // The tensor's storage holds the buffer: it is given back when the last view of it is gone.
    return at::from_blob(
        buffer.get() + offset, sizes, [held = buffer](void*) {}, at::TensorOptions(dtype));
  };
  for (size_t f = 0; f < fields_.size(); ++f)
    batch.tensors.push_back(tensor_at(offsets_[f], with_rows(rows_, fields_[f].shape), fields_[f].dtype));
  float* const weight = reinterpret_cast<float*>(buffer.get() + weight_offset_);
  std::fill_n(weight, batch.slice.real, 1.0f);
  std::fill(weight + batch.slice.real, weight + rows_, 0.0f);
  batch.weight = tensor_at(weight_offset_, {rows_}, at::kFloat);
}

void BatchMaker::write_samples(const Slice& slice, std::byte* buffer) const {
  std::vector<std::byte*> memory(fields_.size());
  for (int64_t row = 0; row < rows_; ++row) {
    for (size_t f = 0; f < fields_.size(); ++f)
      memory[f] = buffer + offsets_[f] + static_cast<size_t>(row) * row_bytes_[f];
    const int64_t sample = slice.samples[row];
    SampleWriter out(fields_, memory, slice.epoch, sample, text_);
    data_.load_into(out, sample_key(seed_, slice.epoch, sample));
    out.check_complete();
  }
}

void BatchMaker::prove(const Slice& slice, const std::byte* made) {
  const std::shared_ptr<std::byte> again = buffers_->take().memory;
  std::memset(again.get(), kSecondFill, buffers_->bytes());
  write_samples(slice, again.get());
  for (size_t f = 0; f < fields_.size(); ++f) {
    const size_t bytes = row_bytes_[f] * static_cast<size_t>(rows_);
    const std::byte *first = made + offsets_[f], *second = again.get() + offsets_[f];
    const size_t same = static_cast<size_t>(std::mismatch(first, first + bytes, second).first - first);
    if (same == bytes) continue;
    const size_t element = same % row_bytes_[f] / c10::elementSize(fields_[f].dtype);
    throw ConfigError(
        fmt::format("sample {} of {}: element {} of '{}' differs when the sample is loaded again",
                    slice.samples[same / row_bytes_[f]], text_, element, fields_[f].name),
        "load_into() left it unwritten, or it follows from something else than the sample's number and `random`",
        "write every element (write_padded() fills what is behind a short sample), and draw from `random` only");
  }
}

// ---- load(): tensors made by the data set ----

void BatchMaker::load_tensors(Batch& batch, const RandomKey& random) {
  batch.tensors = data_.load(batch.slice.samples, random);
  check_loaded(batch);
  batch.weight = weights_of(batch.slice);
}

void BatchMaker::check_loaded(const Batch& batch) {
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    const at::Tensor& tensor = batch.tensors[t];
    if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == rows_) continue;
    throw ConfigError(fmt::format("tensor {} that load() of {} made is {}, for {} samples from sample {} on", t, text_,
                                  tensor.defined() ? dtype_text(tensor.scalar_type()) + " " + shape_text(tensor.sizes())
                                                   : "undefined",
                                  rows_, batch.slice.samples[0]),
                      "its first dimension is the sample",
                      fmt::format("return tensors of shape [{}, ...], one row a sample", rows_));
  }
  const Loaded* first = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!first_) {
      Loaded loaded{.sample = batch.slice.samples[0]};
      for (const at::Tensor& tensor : batch.tensors) {
        loaded.dtypes.push_back(tensor.scalar_type());
        loaded.shapes.push_back(tensor.sizes().vec());
      }
      first_ = std::make_unique<const Loaded>(std::move(loaded));
    }
    first = first_.get();
  }
  for (size_t t = 0; t < std::max(batch.tensors.size(), first->shapes.size()); ++t) check_like_first(batch, t, *first);
}

void BatchMaker::check_like_first(const Batch& batch, size_t t, const Loaded& first) const {
  const bool here = t < batch.tensors.size(), there = t < first.shapes.size();
  if (here && there && batch.tensors[t].scalar_type() == first.dtypes[t] &&
      batch.tensors[t].sizes() == at::IntArrayRef(first.shapes[t]))
    return;
  const auto text = [](bool is_there, const auto& dtype, const auto& shape) {
    return is_there ? dtype_text(dtype()) + " " + shape_text(shape()) : std::string("missing");
  };
  throw ConfigError(
      fmt::format("tensor {} that load() of {} made is {} in the batch that begins with sample {}, and {} in the one "
                  "that begins with sample {}",
                  t, text_,
                  text(
                      here, [&] { return batch.tensors[t].scalar_type(); }, [&] { return batch.tensors[t].sizes(); }),
                  batch.slice.samples[0],
                  text(
                      there, [&] { return first.dtypes[t]; }, [&] { return at::IntArrayRef(first.shapes[t]); }),
                  first.sample),
      "a shard runs at the same shapes at every step",
      "make every batch's tensors alike: pad or cut the samples to one length where they are loaded");
}

}  // namespace tandem
