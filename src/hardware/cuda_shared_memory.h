// hardware/cuda_shared_memory.h -- memory on this process's GPU that other processes of the machine map.
//
// Made by cuMemCreate and exported as a file descriptor: it then lives until the last process that maps it is gone, and
// not only as long as its owner, as memory behind a CUDA IPC handle would. Some containers and virtual machines refuse
// it. The process must have a context: the CUDA runtime's primary one. Sizes are rounded up to whole pages of the GPU.
#pragma once

#include <cstddef>
#include <memory>

namespace tandem {

class CudaSharedMemory {
 public:
  // On a visible GPU, the first unless told otherwise; not cleared. Throws std::runtime_error with the driver's words.
  static std::unique_ptr<CudaSharedMemory> create(size_t bytes, int gpu = 0);
  // Maps for this GPU what another process made, or another GPU of this one. Owns `fd` from now on.
  static std::unique_ptr<CudaSharedMemory> adopt(int fd, size_t bytes, int gpu = 0);
  virtual ~CudaSharedMemory() = default;

  virtual void* data() const = 0;
  virtual int fd() const = 0;  // for another process's adopt(), once create() made it
};

// Whether processes use the first visible GPU at once, by NVIDIA's MPS; else they take turns.
bool gpu_runs_processes_at_once();

// Whether kernels find pinned memory of the host where the host does: not on every machine (WSL 2, Jetson).
bool gpu_has_address_of_host(const void* pinned);

}  // namespace tandem
