// reduce/peer_memory.h -- memory that one member of a job makes and the others map, for sums by kernels (peer_link.h).
//
// An area stays readable after its owner's death, as long as somebody maps it. Two kinds: on the owner's GPU, for those
// who reach it, and pinned memory of the host, which every GPU of the machine reaches. A CPU worker's device memory is
// the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"

namespace tandem {

class PeerArea {
 public:
  virtual ~PeerArea() = default;
  virtual float* data() const = 0;               // as this process's device sees it
  virtual bool on_gpu() const { return false; }  // else the host reaches it too
  virtual int fd() const = 0;                    // for the others, from its owner
};

// Throws std::runtime_error with the reason where an area can't be made or mapped. `fd` is owned by map().
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual std::unique_ptr<PeerArea> make(size_t bytes) = 0;
  virtual std::unique_ptr<PeerArea> map(int fd, size_t bytes) = 0;
};

inline constexpr char kNotPinned[] =
    "the driver does not pin memory of the host, or the GPU sees it at another address (a limit on locked memory: "
    "ulimit -l)";

// So that kernels of `device` reach it at the host's own address; false: refused, and it is not pinned.
bool pin_for_kernels(Device& device, std::span<std::byte> host);

// Sealed shared memory, pinned for `device`.
std::unique_ptr<PeerMemory> host_peer_memory(Device& device);
// Memory of the first visible GPU (hardware/cuda_shared_memory.h).
std::unique_ptr<PeerMemory> gpu_peer_memory();

}  // namespace tandem
