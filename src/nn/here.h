// nn/here.h -- this process's device, as libtorch names it.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/device.h"

namespace tandem {

inline at::TensorOptions here(at::ScalarType type = at::kFloat) {
  return at::TensorOptions(device().is_cuda() ? at::kCUDA : at::kCPU).dtype(type);
}
// The tensor itself where it is here already.
inline at::Tensor here(const at::Tensor& tensor) { return tensor.to(device().is_cuda() ? at::kCUDA : at::kCPU); }

}  // namespace tandem
