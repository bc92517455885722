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
struct IpcHandle {
  char bytes[64] = {};
};
static_assert(sizeof(AllocationProperties) == 32 && sizeof(AccessOf) == 12 && sizeof(IpcHandle) == 64);

size_t whole_pages(const Cuda& cuda, size_t bytes) {
  const AllocationProperties properties;
  size_t page = 0;
  cuda.call("cuMemGetAllocationGranularity", &page, &properties, 0);
  if (page == 0) throw CudaTrouble("cuMemGetAllocationGranularity: pages of no size");
  return (bytes + page - 1) / page * page;
}

class Mapped : public CudaSharedMemory {
 public:
  Mapped(Allocation allocation, size_t bytes, int fd) : allocation_(allocation), bytes_(bytes), fd_(fd) {
    try {
      cuda_.call("cuMemAddressReserve", &address_, bytes_, size_t{0}, Address{0}, 0ull);
      cuda_.call("cuMemMap", address_, bytes_, size_t{0}, allocation_, 0ull);
      mapped_ = true;
      const AccessOf ours;
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

class LentByHandle : public CudaSharedMemory {
 public:
  explicit LentByHandle(size_t bytes) {
    cuda_.call("cuMemAlloc_v2", &address_, bytes);
    IpcHandle handle;
    if (const int code = cuda_.try_call("cuIpcGetMemHandle", &handle, address_); code != 0) {
      cuda_.try_call("cuMemFree_v2", address_);
      throw CudaTrouble("cuIpcGetMemHandle: CUDA error " + std::to_string(code));
    }
    constexpr char kDigits[] = "0123456789abcdef";
    for (const char byte : handle.bytes) {
      text_ += kDigits[static_cast<unsigned char>(byte) >> 4];
      text_ += kDigits[static_cast<unsigned char>(byte) & 15];
    }
  }
  ~LentByHandle() override { cuda_.try_call("cuMemFree_v2", address_); }
  void* data() const override { return reinterpret_cast<void*>(address_); }
  std::string handle() const override { return text_; }

 private:
  Cuda cuda_;
  Address address_ = 0;
  std::string text_;
};

class OpenedByHandle : public CudaSharedMemory {
 public:
  explicit OpenedByHandle(const std::string& text) {
    IpcHandle handle;
    if (text.size() != 2 * sizeof handle.bytes) throw CudaTrouble("a CUDA IPC handle of another length");
    const auto digit = [](char c) -> int {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      throw CudaTrouble("a CUDA IPC handle that is none");
    };
    for (size_t i = 0; i < sizeof handle.bytes; ++i)
      handle.bytes[i] = static_cast<char>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    constexpr unsigned kEnablePeerAccess = 1;
    cuda_.call("cuIpcOpenMemHandle_v2", &address_, handle, kEnablePeerAccess);
  }
  ~OpenedByHandle() override { cuda_.try_call("cuIpcCloseMemHandle", address_); }
  void* data() const override { return reinterpret_cast<void*>(address_); }

 private:
  Cuda cuda_;
  Address address_ = 0;
};

std::unique_ptr<CudaSharedMemory> by_descriptor(size_t bytes) {
  const Cuda cuda;
  const size_t whole = whole_pages(cuda, bytes);
  const AllocationProperties properties;
  Allocation allocation = 0;
  cuda.call("cuMemCreate", &allocation, whole, &properties, 0ull);
  int fd = -1;
  if (const int code =
          cuda.try_call("cuMemExportToShareableHandle", static_cast<void*>(&fd), allocation, kFileDescriptor, 0ull);
      code != 0) {
    cuda.try_call("cuMemRelease", allocation);
    throw CudaTrouble("cuMemExportToShareableHandle: CUDA error " + std::to_string(code));
  }
  return std::make_unique<Mapped>(allocation, whole, fd);
}

}  // namespace

std::unique_ptr<CudaSharedMemory> CudaSharedMemory::create(size_t bytes) {
  std::string first;
  try {
    return by_descriptor(bytes);
  } catch (const CudaTrouble& trouble) {
    first = trouble.what();
  }
  try {
    return std::make_unique<LentByHandle>(bytes);
  } catch (const CudaTrouble& trouble) {
    throw std::runtime_error(first + "; " + trouble.what());
  }
}

std::unique_ptr<CudaSharedMemory> CudaSharedMemory::adopt(int fd, const std::string& handle, size_t bytes) {
  if (fd < 0) return std::make_unique<OpenedByHandle>(handle);
  Allocation allocation = 0;
  try {
    const Cuda cuda;
    const size_t whole = whole_pages(cuda, bytes);
    cuda.call("cuMemImportFromShareableHandle", &allocation, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
              kFileDescriptor);
    close(std::exchange(fd, -1));
    return std::make_unique<Mapped>(allocation, whole, -1);
  } catch (...) {
    if (fd >= 0) close(fd);
    throw;
  }
}

}  // namespace tandem
