// config/gpu_ids.h -- the NVIDIA GPUs that this process may use, without CUDA: NVML is asked, where there is one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct GpuId {
  std::string uuid;  // what CUDA_VISIBLE_DEVICES takes to show one GPU alone
  std::string name;  // "NVIDIA H200"
};

// Every GPU of the machine, in nvidia-smi's order; empty where there is no driver. Takes up to a second.
std::vector<GpuId> all_gpu_ids();
// What CUDA_VISIBLE_DEVICES leaves of them, in its order. Numbers count in nvidia-smi's order; as CUDA has it, the list
// ends at the first entry that names no GPU. Null: all of them.
std::vector<GpuId> visible_gpu_ids(const std::vector<GpuId>& all, const char* visible_devices);

}  // namespace tandem
