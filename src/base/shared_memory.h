// base/shared_memory.h -- memory shared between processes that inherited or were sent its descriptor.
//
// A memfd, sealed so that nobody can shrink or grow it under the others (a shrunk one would kill its readers with
// SIGBUS). It has no name in any file system: when the last process is gone, so is the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem {

class SharedMemory {
 public:
  SharedMemory() = default;  // empty
  // Zeroed, mapped, sealed. Throws IoError (with what to do: /dev/shm is not needed, memory is).
  static SharedMemory create(const std::string& name, uint64_t bytes);
  // Maps a descriptor that was inherited or received; owns it from now on. Throws IoError if it is not sealed or
  // smaller than `bytes`.
  static SharedMemory adopt(int fd, uint64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Copies into it without touching the mapping: pages that are filled whole are not cleared first, and count as no
  // memory of this process. For much at once; half the cost of a copy into memory that is new. Throws IoError.
  void write(uint64_t at, std::span<const std::byte> from) const;

  int fd() const { return fd_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem
