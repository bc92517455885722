#include "engine/device_state.h"

#include <ATen/ATen.h>

#include "engine/gpu_device.h"

namespace tandem {

std::vector<at::Tensor> DeviceState::saved() const {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> fields = shards_.state().device_fields();
  size_t bytes = 0;
  for (const at::Tensor& field : fields) bytes += field.nbytes();
  const GpuDevice* const gpu = shards_.gpu();
  const bool there = !gpu || bytes < gpu->free_bytes() / 4;
  std::vector<at::Tensor> saved;
  for (const at::Tensor& field : fields) saved.push_back(there ? field.clone() : field.to(at::kCPU, false, true));
  return saved;
}

void DeviceState::restore(const std::vector<at::Tensor>& saved) const {
  if (saved.empty()) return;
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> now = shards_.state().device_fields();
  for (size_t i = 0; i < saved.size(); ++i) now[i].copy_(saved[i]);
}

std::vector<uint64_t> DeviceState::bits() const {
  std::vector<uint64_t> bits;
  for (const at::Tensor& field : shards_.state().device_fields())
    bits.push_back(shards_.device().state_hash(field.data_ptr(), static_cast<int64_t>(field.nbytes())));
  return bits;
}

}  // namespace tandem
