// hardware/cuda_shared_memory.h -- memory on this process's GPU that other processes of the machine map.
//
// Made by cuMemCreate and exported as a file descriptor: it then lives until the last process that maps it is gone, and
// not only as long as its owner. Where that is refused (some containers and virtual machines), memory of cuMemAlloc is
// lent by a CUDA IPC handle, which the owner's end invalidates by the letter of the manual. The process must have a
// context: the CUDA runtime's primary one. Sizes are rounded up to whole pages of the GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tandem {

class CudaSharedMemory {
 public:
  // On the first visible GPU; not cleared. Throws std::runtime_error with the driver's words.
  static std::unique_ptr<CudaSharedMemory> create(size_t bytes);
  // Maps what another process made. Owns `fd` from now on, -1 where there is a handle.
  static std::unique_ptr<CudaSharedMemory> adopt(int fd, const std::string& handle, size_t bytes);
  virtual ~CudaSharedMemory() = default;

  virtual void* data() const = 0;
  // What another process needs for adopt(), once create() made it: the one or the other.
  virtual int fd() const { return -1; }
  virtual std::string handle() const { return ""; }  // hexadecimal
};

}  // namespace tandem
