// engine/batch_maker.h -- one batch of a data set, checked: the samples of a slice, and the weight of each row.
//
// Of a data set that declares its fields, a batch is one block of memory that is used again (engine/batch_buffers.h):
//   [ field 0 of all rows | field 1 | ... | weight ]     each part at a multiple of 512 bytes, as in InputStaging
// so it can be pinned and copied to a GPU as it is, in one piece. Small blocks are not pinned: they go with the step's
// other small inputs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/batch_buffers.h"

namespace tandem {

std::string data_text(const Dataset& data);  // "the data set 'clips'"

class BatchMaker {
 public:
  // `rows` of every batch. `pinning`: for the GPU that batches go to; none on the CPU. Throws ConfigError for fields
  // that make no sense. `data` must outlive this object.
  BatchMaker(const Dataset& data, uint64_t seed, int64_t rows, HostPinning pinning = {});

  // From any thread. `random`: the batch's stream, for load(). Throws ConfigError for a sample or batch of another
  // shape or type than the rest.
  Batch make(Slice slice, const RandomKey& random);
  // Where the data set is resident() and fits into `room` bytes, loads all of it to the device, by so many threads; a
  // batch is then the numbers of its rows, until expand_resident() (engine/resident_data.h). Returns what the user
  // should know, or "". Throws ConfigError where a sample can't stay the same. alive() is called now and then. Not
  // while make() is called.
  std::string load_resident(int threads, size_t room, const std::function<void()>& alive = {});
  bool wants_resident() const { return !looked_for_room_ && data_.resident(); }  // it was not called yet
  // What the user should know, once: that memory could not be pinned. Else "".
  std::string take_note();
  size_t buffers_made() const { return buffers_ ? buffers_->made() : 0; }

 private:
  struct Loaded {  // what load() made first: every other batch must have the same
    int64_t sample = 0;
    std::vector<at::ScalarType> dtypes;
    std::vector<std::vector<int64_t>> shapes;
  };
  void lay_out(HostPinning pinning);
  void load_tensors(Batch& batch, const RandomKey& random);
  void check_loaded(const Batch& batch);
  void check_like_first(const Batch& batch, size_t tensor, const Loaded& first) const;
  void write_samples(const Slice& slice, std::byte* buffer) const;
  void prove(const Slice& slice, const std::byte* made);  // that nothing is left out, and that the same comes again
  void use_buffer(Batch& batch);
  void number_rows(Batch& batch) const;

  const Dataset& data_;
  std::string text_;  // data_text()
  uint64_t seed_;
  int64_t rows_;
  std::vector<DataField> fields_;
  std::vector<size_t> offsets_, row_bytes_;  // of each field
  size_t weight_offset_ = 0;
  std::shared_ptr<BatchBuffers> buffers_;
  std::shared_ptr<const ResidentData> resident_;
  std::atomic<bool> proving_{true};
  bool looked_for_room_ = false;
  bool reported_ = false;  // by take_note()
  std::mutex mutex_;
  std::unique_ptr<const Loaded> first_;
};

}  // namespace tandem
