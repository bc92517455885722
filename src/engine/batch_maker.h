// engine/batch_maker.h -- one batch of a data set, checked: the samples of a slice, and the weight of each row.
//
// Of a data set that declares its fields, a batch is one block of memory that is used again (engine/batch_buffers.h):
//   [ field 0 of all rows | field 1 | ... | weight ]     each part at a multiple of 512 bytes, as in InputStaging
// so it can be pinned and copied to a GPU as it is, in one piece.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/batch_buffers.h"

namespace tandem {

class BatchMaker {
 public:
  // `rows` of every batch. Throws ConfigError for fields that make no sense. `data` must outlive this object.
  BatchMaker(const Dataset& data, uint64_t seed, int64_t rows);

  // From any thread. `random`: the batch's stream, for load(). Throws ConfigError for a sample or batch of another
  // shape or type than the rest.
  Batch make(Slice slice, const RandomKey& random);
  size_t buffers_made() const { return buffers_ ? buffers_->made() : 0; }

 private:
  struct Loaded {  // what load() made first: every other batch must have the same
    int64_t sample = 0;
    std::vector<at::ScalarType> dtypes;
    std::vector<std::vector<int64_t>> shapes;
  };
  void lay_out();
  void load_tensors(Batch& batch, const RandomKey& random);
  void check_loaded(const Batch& batch);
  void check_like_first(const Batch& batch, size_t tensor, const Loaded& first) const;
  void write_samples(const Slice& slice, std::byte* buffer) const;
  void prove(const Slice& slice, const std::byte* made);  // that nothing is left out, and that the same comes again
  void use_buffer(Batch& batch);

  const Dataset& data_;
  std::string text_;  // "the data set 'clips'"
  uint64_t seed_;
  int64_t rows_;
  std::vector<DataField> fields_;
  std::vector<size_t> offsets_, row_bytes_;  // of each field
  size_t weight_offset_ = 0;
  std::shared_ptr<BatchBuffers> buffers_;
  std::atomic<bool> proving_{true};
  std::mutex mutex_;
  std::unique_ptr<const Loaded> first_;
};

}  // namespace tandem
