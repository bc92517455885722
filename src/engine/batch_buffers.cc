#include "engine/batch_buffers.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "kernels/device.h"

namespace tandem {
namespace {

constexpr size_t kBufferPage = 4096;

}  // namespace

HostPinning pinning_for(Device& device) {
  return {[&device](void* host, size_t bytes) { return device.pin(host, bytes); },
          [&device](void* host) { device.unpin(host); }};
}

BatchBuffers::BatchBuffers(size_t bytes, HostPinning pinning)
    : bytes_((std::max<size_t>(bytes, 1) + kBufferPage - 1) / kBufferPage * kBufferPage),
      pinning_(std::move(pinning)) {}

BatchBuffers::~BatchBuffers() {
  for (const Buffer& buffer : free_) {  // all of them: each one in use keeps this object alive
    if (buffer.pinned) pinning_.unpin(buffer.memory);
    std::free(buffer.memory);
  }
}

BatchBlock BatchBuffers::take() {
  Buffer buffer{nullptr, false};
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      buffer = free_.back();
      free_.pop_back();
    } else {
      free_.reserve(made_ + 1);  // give_back() must not throw
      ++made_;
    }
  }
  if (!buffer.memory) buffer = make();
  return {{buffer.memory, [pool = shared_from_this(), buffer](std::byte*) { pool->give_back(buffer); }}, buffer.pinned};
}

// Pinning takes milliseconds: other threads take theirs meanwhile.
BatchBuffers::Buffer BatchBuffers::make() {
  Buffer buffer{static_cast<std::byte*>(std::aligned_alloc(kBufferPage, bytes_)), false};
  if (!buffer.memory) {
    std::lock_guard lock(mutex_);
    --made_;
    throw std::bad_alloc();
  }
  if (!pinning_.pin || pin_refused()) return buffer;
  buffer.pinned = pinning_.pin(buffer.memory, bytes_);
  if (!buffer.pinned) {
    std::lock_guard lock(mutex_);
    pin_refused_ = true;
  }
  return buffer;
}

void BatchBuffers::give_back(Buffer buffer) {
  std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

size_t BatchBuffers::made() const {
  std::lock_guard lock(mutex_);
  return made_;
}

bool BatchBuffers::pin_refused() const {
  std::lock_guard lock(mutex_);
  return pin_refused_;
}

}  // namespace tandem
