// config/gpus_and_driver.h -- every GPU of the machine and the versions of its driver, by one question to NVML.
#pragma once

#include <vector>

#include "config/gpu_ids.h"
#include "hardware/driver_check.h"

namespace tandem {

struct GpusAndDriver {
  std::vector<GpuId> gpus;  // as all_gpu_ids()
  DriverVersions driver;    // nothing where there is none
};
GpusAndDriver gpus_and_driver();

}  // namespace tandem
