// engine/batch_uploads.h -- large batches on their way from pinned host memory to fixed addresses on a GPU.
//
//   pinned buffer  --copy stream-->  landing buffer  --on the GPU-->  fixed address, which a CUDA graph reads
// The next step's batches land while the GPU works on this one's. The copy on the GPU takes a two-hundredth of the
// time of the upload. One landing buffer serves a caller that puts one step ahead; one that puts two gets another.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/copy_stream.h"
#include "kernels/device.h"

namespace tandem {

class BatchUploads {
 public:
  // `bytes`: of one micro-batch; a multiple of 512. Throws std::bad_alloc.
  BatchUploads(Device& device, std::unique_ptr<CopyStream> stream, int micro_batches, size_t bytes);
  ~BatchUploads();
  BatchUploads(const BatchUploads&) = delete;

  std::byte* on_gpu(int micro_batch) const { return fixed_ + offset_of(micro_batch); }
  // Queues the upload of a part of a micro-batch for the next queue_up(copy). `holds` keeps the host memory as it is:
  // it is let go once the GPU has read it.
  void put(int copy, int micro_batch, size_t offset, const void* host, size_t bytes, std::shared_ptr<const void> holds);
  // Work that is queued from now on finds what was put for `copy` at the fixed addresses, until the next queue_up().
  void queue_up(int copy);
  size_t landing_buffers() const { return landings_.size(); }

 private:
  struct Landing {
    std::byte* memory = nullptr;
    int copy = -1;  // what was put here and waits for queue_up(); -1: none
    std::vector<std::shared_ptr<const void>> held;
  };
  size_t offset_of(int micro_batch) const { return static_cast<size_t>(micro_batch) * bytes_; }
  size_t landing_of(int copy);
  void add_landing();
  void let_go();  // of what the GPU has read

  Device& device_;
  std::unique_ptr<CopyStream> stream_;
  size_t bytes_, all_bytes_;
  std::byte* fixed_;
  std::vector<Landing> landings_;  // the index is the stream's slot
  int at_fixed_ = -1;              // whose batches lie at the fixed addresses
};

}  // namespace tandem
