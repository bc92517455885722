#include "reduce/peer_memory.h"

#include <stdexcept>
#include <utility>

#include "base/shared_memory.h"
#include "hardware/cuda_shared_memory.h"

namespace tandem {
namespace {

class HostArea : public PeerArea {
 public:
  HostArea(SharedMemory memory, Device& device) : memory_(std::move(memory)), device_(device) {
    if (!pin_for_kernels(device_, memory_.bytes())) throw std::runtime_error(kNotPinned);
  }
  ~HostArea() override { device_.unpin(memory_.bytes().data()); }
  float* data() const override { return reinterpret_cast<float*>(memory_.bytes().data()); }
  int fd() const override { return memory_.fd(); }

 private:
  SharedMemory memory_;
  Device& device_;
};

class HostPeerMemory : public PeerMemory {
 public:
  explicit HostPeerMemory(Device& device) : device_(device) {}
  std::unique_ptr<PeerArea> make(size_t bytes) override {
    return std::make_unique<HostArea>(SharedMemory::create("tandem-peers", bytes), device_);
  }
  std::unique_ptr<PeerArea> map(int fd, size_t bytes) override {
    return std::make_unique<HostArea>(SharedMemory::adopt(fd, bytes), device_);
  }

 private:
  Device& device_;
};

class GpuArea : public PeerArea {
 public:
  explicit GpuArea(std::unique_ptr<CudaSharedMemory> memory) : memory_(std::move(memory)) {}
  float* data() const override { return static_cast<float*>(memory_->data()); }
  bool on_gpu() const override { return true; }
  int fd() const override { return memory_->fd(); }

 private:
  std::unique_ptr<CudaSharedMemory> memory_;
};

class GpuPeerMemory : public PeerMemory {
 public:
  std::unique_ptr<PeerArea> make(size_t bytes) override {
    return std::make_unique<GpuArea>(CudaSharedMemory::create(bytes));
  }
  std::unique_ptr<PeerArea> map(int fd, size_t bytes) override {
    return std::make_unique<GpuArea>(CudaSharedMemory::adopt(fd, bytes));
  }
};

}  // namespace

bool pin_for_kernels(Device& device, std::span<std::byte> host) {
  const bool pinned = device.pin(host.data(), host.size());
  if (!device.is_cuda() || (pinned && gpu_has_address_of_host(host.data()))) return true;
  if (pinned) device.unpin(host.data());
  return false;
}

std::unique_ptr<PeerMemory> host_peer_memory(Device& device) { return std::make_unique<HostPeerMemory>(device); }
std::unique_ptr<PeerMemory> gpu_peer_memory() { return std::make_unique<GpuPeerMemory>(); }

}  // namespace tandem
