// recipes/web_gpu_environment.h -- a web-test agent's world for a worker, which may drive a GPU: it knows the
// kernels.
#pragma once

#include <optional>

#include "engine/gpu_device.h"
#include "recipes/cuda_web_environment.h"
#include "recipes/web_environment.h"

namespace tandem {

class WebGpuEnvironment : public WebEnvironment {
 public:
  using WebEnvironment::WebEnvironment;
  std::optional<GpuEnvironment> on_gpu() const override {
    const WebKernels* const kernels = gpu() ? gpu()->kernels<WebKernels>() : nullptr;
    if (!kernels) return std::nullopt;
    return GpuEnvironment{kernels->advance, agent_};
  }
};

}  // namespace tandem
