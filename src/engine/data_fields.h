// engine/data_fields.h -- what every sample of a data set consists of, and the memory that a sample is written to.
//
// A data set that declares its fields writes each sample straight into the batch: one row of [rows, shape...] of each
// field, in memory that the loader owns and uses again. No tensor is made per sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/philox.h"

namespace tandem {

struct DataField {
  std::string name;  // for messages
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  // of one sample; empty: a single number
  double padding = 0;          // what write_padded() puts behind a sample that is shorter than the field
};

int64_t elements_of(const DataField& field);
std::string dtype_text(at::ScalarType dtype);   // "float32", as PyTorch writes it
std::string shape_text(at::IntArrayRef shape);  // "[3, 224, 224]"

// The random stream of one sample in one epoch, for augmentation: a function of (seed, epoch, sample), so it depends
// neither on the batch that the sample is in nor on the number of shards.
RandomKey sample_key(uint64_t seed, int64_t epoch, int64_t sample);

// Where one sample goes. Every field is to be written, by one of the calls below, with every element of what the call
// returns. Memory is used again for other batches: an element that is left out would hold whatever was there before.
// The first batch of a process is therefore loaded twice, into memory with different contents, and compared.
// What does not fit the declaration throws a ConfigError that names data set, sample, field, what was found and what
// was declared.
class SampleWriter {
 public:
  int64_t sample() const { return sample_; }
  int64_t epoch() const { return epoch_; }
  const DataField& field(size_t index) const { return fields_[index]; }

  // The whole field, for a sample whose shape can't be another than the declared one.
  template <class T>
  std::span<T> write(size_t field) {
    return {static_cast<T*>(take(field, c10::CppTypeToScalarType<T>::value, nullptr)), elements(field)};
  }
  // The same for a sample that may have another shape, which is then refused: a decoded picture, a file's array.
  template <class T>
  std::span<T> write(size_t field, at::IntArrayRef shape) {
    return {static_cast<T*>(take(field, c10::CppTypeToScalarType<T>::value, &shape)), elements(field)};
  }
  // The first `length` items along the field's first dimension; those behind them become its padding. A longer sample
  // is refused.
  template <class T>
  std::span<T> write_padded(size_t field, int64_t length) {
    return {static_cast<T*>(take_padded(field, c10::CppTypeToScalarType<T>::value, length)),
            static_cast<size_t>(length * items(field))};
  }
  // A field of one number.
  template <class T>
  void put(size_t field, T value) {
    write<T>(field, {})[0] = value;
  }
  // Copies a tensor, of any strides, that must have the field's type and shape.
  void copy(size_t field, const at::Tensor& value);

  // ---- for the engine ----
  // `memory[i]`: where this sample's row of field i begins. `data`: "the data set 'clips'", for messages.
  SampleWriter(std::span<const DataField> fields, std::span<std::byte* const> memory, int64_t epoch, int64_t sample,
               const std::string& data)
      : fields_(fields), memory_(memory), epoch_(epoch), sample_(sample), data_(data) {}
  void check_complete() const;  // throws where a field was not written

 private:
  void* take(size_t field, at::ScalarType type, const at::IntArrayRef* shape);
  void* take_padded(size_t field, at::ScalarType type, int64_t length);
  size_t elements(size_t field) const { return static_cast<size_t>(elements_of(fields_[field])); }
  int64_t items(size_t field) const;  // elements of one item of the first dimension
  void refuse_index(size_t field) const;
  [[noreturn]] void refuse(size_t field, const std::string& found) const;

  std::span<const DataField> fields_;
  std::span<std::byte* const> memory_;
  int64_t epoch_, sample_;
  const std::string& data_;
  uint64_t written_ = 0;  // a bit for each field
};

}  // namespace tandem
