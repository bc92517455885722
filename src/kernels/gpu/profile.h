// kernels/gpu/profile.h -- how long each kernel of a queue of work takes, for bench/ (GpuDevice::kernels()).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu/kernel_tables.h"
#include "kernels/gpu/kernels.h"

namespace tandem::cuda {

// Seconds of every launch that `work` queues on the stream, in order; copies count with the launch after them. `work`
// must not wait for the GPU.
std::vector<std::pair<std::string, double>> profile(Stream stream, const std::function<void()>& work);

}  // namespace tandem::cuda

namespace tandem {

struct ProfileKernels {
  static constexpr KernelTableId kId{"profile", 1};
  decltype(&cuda::profile) profile;
};

}  // namespace tandem
