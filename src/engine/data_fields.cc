#include "engine/data_fields.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "nn/sites.h"

namespace tandem {
namespace {

void fill_padding(void* memory, int64_t count, at::ScalarType dtype, double value) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "padding",
                             [&] { std::fill_n(static_cast<scalar_t*>(memory), count, static_cast<scalar_t>(value)); });
}

}  // namespace

int64_t elements_of(const DataField& field) {
  int64_t count = 1;
  for (const int64_t n : field.shape) count *= n;
  return count;
}

std::string dtype_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

std::string shape_text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

RandomKey sample_key(uint64_t seed, int64_t epoch, int64_t sample) {
  // The key has 16 bits for the epoch; those beyond go into the seed.
  const uint64_t many_epochs = static_cast<uint64_t>(epoch) >> 16;
  return {.seed = seed + many_epochs * 0x9E3779B97F4A7C15u,
          .step = static_cast<uint64_t>(sample),
          .shard = static_cast<uint32_t>(epoch & 0xFFFF),
          .site = kSampleAugmentation};
}

void SampleWriter::refuse(size_t field, const std::string& found) const {
  const DataField& declared = fields_[field];
  throw ConfigError(
      fmt::format("sample {} of {}: '{}' is {}, declared is {} {}", sample_, data_, declared.name, found,
                  dtype_text(declared.dtype), shape_text(declared.shape)),
      "all samples of a batch lie in one array, and a shard runs at the same shapes at every step",
      "bring the sample to that type and shape where it is loaded, leave it out of the set, or declare another shape");
}

void SampleWriter::refuse_index(size_t field) const {
  if (field < fields_.size()) return;
  throw std::logic_error(fmt::format("{} writes field {}, but declares {}", data_, field, fields_.size()));
}

int64_t SampleWriter::items(size_t field) const {
  const DataField& declared = fields_[field];
  return declared.shape[0] == 0 ? 0 : elements_of(declared) / declared.shape[0];
}

void* SampleWriter::take(size_t field, at::ScalarType type, const at::IntArrayRef* shape) {
  refuse_index(field);
  const DataField& declared = fields_[field];
  const bool same_shape = !shape || *shape == at::IntArrayRef(declared.shape);
  if (type != declared.dtype || !same_shape)
    refuse(field, shape ? dtype_text(type) + " " + shape_text(*shape) : "written as " + dtype_text(type));
  written_ |= uint64_t{1} << field;
  return memory_[field];
}

void* SampleWriter::take_padded(size_t field, at::ScalarType type, int64_t length) {
  refuse_index(field);
  const DataField& declared = fields_[field];
  if (declared.shape.empty()) refuse(field, fmt::format("{} items long", length));
  if (length < 0 || length > declared.shape[0])
    refuse(field, fmt::format("{} with {} items", dtype_text(type), length));
  void* const memory = take(field, type, nullptr);
  const int64_t rest = (declared.shape[0] - length) * items(field);
  if (rest > 0) {
    std::byte* const behind = static_cast<std::byte*>(memory) + length * items(field) * c10::elementSize(type);
    fill_padding(behind, rest, type, declared.padding);
  }
  return memory;
}

void SampleWriter::copy(size_t field, const at::Tensor& value) {
  const at::IntArrayRef shape = value.sizes();
  void* const memory = take(field, value.scalar_type(), &shape);
  at::NoGradGuard no_grad;
  at::from_blob(memory, shape, at::TensorOptions(value.scalar_type())).copy_(value);
}

void SampleWriter::check_complete() const {
  for (size_t f = 0; f < fields_.size(); ++f)
    if (!(written_ >> f & 1)) refuse(f, "not written");
}

}  // namespace tandem
