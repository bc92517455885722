// nn/here.h -- this process's device, as libtorch names it.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/device.h"

namespace tandem {

inline at::TensorOptions here(at::ScalarType type = at::kFloat) {
  return at::TensorOptions(device().is_cuda() ? at::kCUDA : at::kCPU).dtype(type);
}
// The tensor itself where it is here already. On a CPU no operation of libtorch is called to find that out: a
// step asks for each of its inputs.
inline at::Tensor here(const at::Tensor& tensor) {
  if (device().is_cuda()) return tensor.to(at::kCUDA);
  return tensor.is_cpu() ? tensor : tensor.to(at::kCPU);
}

}  // namespace tandem
