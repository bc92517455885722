// cuda/work_memory.h -- one private pool of libtorch's allocator, for captures and for eager runs of what is captured.
//
// A graph keeps the addresses that were free while it was captured: only its pool may give them out. Were eager runs to
// allocate elsewhere, activations would be held twice. Here both take the same blocks, one after the other, so nothing
// may outlive the run that allocated it (GpuDevice::in_work_memory). What does all the same stays valid until a replay
// writes to its block; made before the first capture, it stays valid for good, as its block is not free then.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime.h>

#include <functional>
#include <memory>

namespace tandem::cuda {

class WorkMemory {
 public:
  // What is allocated for the streams that `is_ours` is true for comes from the pool, while one is Inside.
  explicit WorkMemory(std::function<bool(cudaStream_t)> is_ours) : is_ours_(std::move(is_ours)) {}
  ~WorkMemory();
  WorkMemory(const WorkMemory&) = delete;

  class Inside {
   public:
    explicit Inside(WorkMemory& memory) : memory_(memory) { memory_.enter(); }
    ~Inside() { memory_.leave(); }
    Inside(const Inside&) = delete;

   private:
    WorkMemory& memory_;
  };

  std::shared_ptr<const void> pool();  // for a graph: its memory stays as long as this
  // Gives back what nothing uses: the plain pool's blocks, and the pool if no graph has it. Not while one is Inside.
  void trim();

 private:
  struct Pool {
    Pool();
    ~Pool();
    c10::MempoolId_t id;
  };
  void enter();
  void leave();
  void make_pool();

  std::function<bool(cudaStream_t)> is_ours_;
  std::shared_ptr<Pool> pool_;
  int depth_ = 0;
};

}  // namespace tandem::cuda
