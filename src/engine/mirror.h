// engine/mirror.h -- memory on the device with a twin in pinned host memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "kernels/device.h"

namespace tandem {

class Mirror {
 public:
  Mirror(size_t bytes, int host_copies = 1);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  size_t size() const { return bytes_; }
  std::byte* on_gpu() const { return gpu_; }
  std::byte* on_host(int copy = 0) { return host_.get() + static_cast<size_t>(copy) * bytes_; }
  void queue_up(int copy) { queue_up(copy, bytes_); }
  void queue_up(int copy, size_t first_bytes) { device().queue_from_host(gpu_, on_host(copy), first_bytes); }
  void queue_down() { device().queue_to_host(on_host(), gpu_, bytes_); }

 private:
  size_t bytes_;
  std::byte* gpu_;
  std::unique_ptr<std::byte[], decltype(&std::free)> host_;  // whole pages: two mirrors never share one
};

}  // namespace tandem
