#include "hardware/cuda_shared_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "hardware/cuda_calls.h"

namespace tandem {
namespace {

using cuda_calls::Address, cuda_calls::Cuda, cuda_calls::CudaTrouble;
using Allocation = unsigned long long;

// As in cuda.h.
constexpr int kPinned = 1, kFileDescriptor = 1, kOnDevice = 1, kReadWrite = 3;
struct Location {
  int type = kOnDevice, id = 0;
};
struct AllocationProperties {
  int type = kPinned, handle_types = kFileDescriptor;
  Location location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
struct AccessOf {
  Location location;
  int flags = kReadWrite;
};
static_assert(sizeof(AllocationProperties) == 32 && sizeof(AccessOf) == 12);

size_t whole_pages(const Cuda& cuda, size_t bytes, int gpu) {
  const AllocationProperties properties{.location = {.id = gpu}};
  size_t page = 0;
  cuda.call("cuMemGetAllocationGranularity", &page, &properties, 0);
  if (page == 0) throw CudaTrouble("cuMemGetAllocationGranularity: pages of no size");
  return (bytes + page - 1) / page * page;
}

class Mapped : public CudaSharedMemory {
 public:
  Mapped(Allocation allocation, size_t bytes, int fd, int gpu) : allocation_(allocation), bytes_(bytes), fd_(fd) {
    try {
      cuda_.call("cuMemAddressReserve", &address_, bytes_, size_t{0}, Address{0}, 0ull);
      cuda_.call("cuMemMap", address_, bytes_, size_t{0}, allocation_, 0ull);
      mapped_ = true;
      const AccessOf ours{.location = {.id = gpu}};
      cuda_.call("cuMemSetAccess", address_, bytes_, &ours, size_t{1});
    } catch (...) {
      release();
      throw;
    }
  }
  ~Mapped() override { release(); }
  void* data() const override { return reinterpret_cast<void*>(address_); }
  int fd() const override { return fd_; }

 private:
  void release() {
    if (mapped_) cuda_.try_call("cuMemUnmap", address_, bytes_);
    if (address_) cuda_.try_call("cuMemAddressFree", address_, bytes_);
    cuda_.try_call("cuMemRelease", allocation_);
    if (fd_ >= 0) close(fd_);
  }

  Cuda cuda_;
  Allocation allocation_;
  Address address_ = 0;
  size_t bytes_;
  int fd_;
  bool mapped_ = false;
};

}  // namespace

std::unique_ptr<CudaSharedMemory> CudaSharedMemory::create(size_t bytes, int gpu) {
  const Cuda cuda;
  const size_t whole = whole_pages(cuda, bytes, gpu);
  const AllocationProperties properties{.location = {.id = gpu}};
  Allocation allocation = 0;
  cuda.call("cuMemCreate", &allocation, whole, &properties, 0ull);
  int fd = -1;
  if (const int code =
          cuda.try_call("cuMemExportToShareableHandle", static_cast<void*>(&fd), allocation, kFileDescriptor, 0ull);
      code != 0) {
    cuda.try_call("cuMemRelease", allocation);
    throw CudaTrouble("cuMemExportToShareableHandle: CUDA error " + std::to_string(code));
  }
  return std::make_unique<Mapped>(allocation, whole, fd, gpu);
}

bool gpu_runs_processes_at_once() {
  constexpr int kMpsEnabled = 133;  // as in cuda.h
  int enabled = 0;
  try {
    return Cuda().try_call("cuDeviceGetAttribute", &enabled, kMpsEnabled, 0) == 0 && enabled != 0;
  } catch (const CudaTrouble&) {
    return false;
  }
}

bool gpu_has_address_of_host(const void* pinned) {
  Address on_gpu = 0;
  try {
    return Cuda().try_call("cuMemHostGetDevicePointer_v2", &on_gpu, pinned, 0u) == 0 &&
           on_gpu == reinterpret_cast<Address>(pinned);
  } catch (const CudaTrouble&) {
    return false;
  }
}

std::unique_ptr<CudaSharedMemory> CudaSharedMemory::adopt(int fd, size_t bytes, int gpu) {
  Allocation allocation = 0;
  try {
    const Cuda cuda;
    const size_t whole = whole_pages(cuda, bytes, gpu);
    cuda.call("cuMemImportFromShareableHandle", &allocation, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
              kFileDescriptor);
    close(std::exchange(fd, -1));
    return std::make_unique<Mapped>(allocation, whole, -1, gpu);
  } catch (...) {
    if (fd >= 0) close(fd);
    throw;
  }
}

}  // namespace tandem
