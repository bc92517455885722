// engine/batch_buffers.h -- memory for batches: taken by loader threads, used again once nobody reads it.
//
// A buffer is whole pages, so that it can be pinned by itself. It is given back when the last copy of its pointer goes:
// every tensor on it holds one, so memory that a step, a copy in flight or a graph of autograd still reads is never
// written again, whatever the loader's threads do. There are as many buffers as were in use at one time; the loader's
// prefetch bounds that. A buffer is pinned once, when it is made, by the thread that takes it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tandem {

class Device;

struct BatchBlock {
  std::shared_ptr<std::byte> memory;
  bool pinned = false;  // a GPU can read it while the CPU goes on
};

// How host memory is pinned for a device (Device::pin); none: it is not.
struct HostPinning {
  std::function<bool(void* host, size_t bytes)> pin;  // false: refused
  std::function<void(void* host)> unpin;
};
HostPinning pinning_for(Device& device);  // it must outlive every buffer

class BatchBuffers : public std::enable_shared_from_this<BatchBuffers> {
 public:
  static std::shared_ptr<BatchBuffers> of(size_t bytes, HostPinning pinning = {}) {
    return std::shared_ptr<BatchBuffers>(new BatchBuffers(bytes, std::move(pinning)));
  }
  ~BatchBuffers();
  BatchBuffers(const BatchBuffers&) = delete;

  BatchBlock take();  // what it holds is undefined; throws std::bad_alloc
  size_t bytes() const { return bytes_; }
  size_t made() const;       // buffers in all
  bool pin_refused() const;  // once is enough: later buffers are not pinned either

 private:
  struct Buffer {
    std::byte* memory;
    bool pinned;
  };
  BatchBuffers(size_t bytes, HostPinning pinning);
  Buffer make();
  void give_back(Buffer buffer);

  size_t bytes_;
  HostPinning pinning_;
  mutable std::mutex mutex_;
  std::vector<Buffer> free_;
  size_t made_ = 0;
  bool pin_refused_ = false;
};

}  // namespace tandem
