// engine/batch_buffers.h -- memory for batches: taken by loader threads, used again once nobody reads it.
//
// A buffer is whole pages, so that it can be pinned by itself. It is given back when the last copy of its pointer goes:
// every tensor on it holds one, so memory that a step, a copy in flight or a graph of autograd still reads is never
// written again, whatever the loader's threads do. There are as many buffers as were in use at one time; the loader's
// prefetch bounds that.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem {

class BatchBuffers : public std::enable_shared_from_this<BatchBuffers> {
 public:
  static std::shared_ptr<BatchBuffers> of(size_t bytes) {
    return std::shared_ptr<BatchBuffers>(new BatchBuffers(bytes));
  }
  ~BatchBuffers();
  BatchBuffers(const BatchBuffers&) = delete;

  std::shared_ptr<std::byte> take();  // what it holds is undefined; throws std::bad_alloc
  size_t bytes() const { return bytes_; }
  size_t made() const;  // buffers in all

 private:
  explicit BatchBuffers(size_t bytes);
  void give_back(std::byte* buffer);

  size_t bytes_;
  mutable std::mutex mutex_;
  std::vector<std::byte*> free_;
  size_t made_ = 0;
};

}  // namespace tandem
