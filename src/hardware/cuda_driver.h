// hardware/cuda_driver.h -- what CUDA's driver library shows a program here: which GPUs are visible, who reaches whom.
//
// NVML lists the GPUs present, this the ones left after CUDA_VISIBLE_DEVICES. cuInit takes about a second with
// eight GPUs and makes the process hold the GPUs open, so it is asked only where somebody wants to know.
// TANDEM_LIBCUDA names another library than libcuda.so.1 (tests do).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct CudaDevice {
  std::string uuid;  // as NVML writes it: "GPU-xxxxxxxx-xxxx-...", "MIG-..." for a part
  std::optional<std::string> name;
};

struct CudaDriver {
  bool library_found = false;
  int init_code = 0;           // cuInit's; 0 is success
  std::string trouble;         // the loader's words, or CUDA's ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device ...")
  std::optional<int> version;  // 13000 is CUDA 13.0
  std::vector<CudaDevice> devices;                      // visible ones, in CUDA's order
  std::vector<std::vector<std::optional<bool>>> peers;  // peers[a][b]: a may read b's memory
  bool ok() const { return library_found && init_code == 0; }
  static constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
};

CudaDriver ask_cuda_driver();

}  // namespace tandem
