// kernels/gpu/cuda_device.h -- one GPU as a Device. Link tandem_kernels_cuda.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/gpu/kernels.h"

namespace tandem::cuda {

// Everything is queued on *stream, as it is at that moment: a stream of the GPU that is current now. Failed calls
// throw CudaError, a lack of memory std::bad_alloc.
std::unique_ptr<Device> make_cuda_device(const Stream* stream);

// What allocate() of such a device has given out: now, and at most.
struct AllocatedBytes {
  size_t now = 0, most = 0;
};
AllocatedBytes allocated_bytes(const Device& device);

}  // namespace tandem::cuda
