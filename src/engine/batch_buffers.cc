#include "engine/batch_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tandem {
namespace {

constexpr size_t kBufferPage = 4096;

}  // namespace

BatchBuffers::BatchBuffers(size_t bytes)
    : bytes_((std::max<size_t>(bytes, 1) + kBufferPage - 1) / kBufferPage * kBufferPage) {}

BatchBuffers::~BatchBuffers() {
  for (std::byte* buffer : free_) std::free(buffer);  // all of them: each one in use keeps this object alive
}

std::shared_ptr<std::byte> BatchBuffers::take() {
  std::byte* buffer = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      buffer = free_.back();
      free_.pop_back();
    } else {
      free_.reserve(made_ + 1);  // give_back() must not throw
      buffer = static_cast<std::byte*>(std::aligned_alloc(kBufferPage, bytes_));
      if (!buffer) throw std::bad_alloc();
      ++made_;
    }
  }
  return {buffer, [pool = shared_from_this()](std::byte* used) { pool->give_back(used); }};
}

void BatchBuffers::give_back(std::byte* buffer) {
  std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

size_t BatchBuffers::made() const {
  std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace tandem
