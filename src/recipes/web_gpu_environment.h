// recipes/web_gpu_environment.h -- a web-test agent's world for a worker, which may drive a GPU: it knows the
// kernels.
#pragma once

#include <optional>

#include "engine/gpu_device.h"
#include "recipes/web_environment.h"

namespace tandem {

class WebGpuEnvironment : public WebEnvironment {
 public:
  using WebEnvironment::WebEnvironment;
  std::optional<GpuEnvironment> on_gpu() const override {
    const auto advance = gpu() ? reinterpret_cast<GpuAdvance>(gpu()->part("web")) : nullptr;
    if (!advance) return std::nullopt;
    return GpuEnvironment{advance, agent_};
  }
};

}  // namespace tandem
