#include "nn/kernel_choice.h"

#include <ATen/autocast_mode.h>

namespace tandem {
namespace {

GpuKernels& offered() {
  static GpuKernels kernels;
  return kernels;
}

}  // namespace

void offer_gpu_kernels(const GpuKernels& kernels) { offered() = kernels; }
const GpuKernels& gpu_kernels() { return offered(); }

FloatType float_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return FloatType::kFloat;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    case at::kHalf:
      return FloatType::kHalf;
    default:
      throw std::logic_error(std::string("no kernels for numbers of type ") + c10::toString(x.scalar_type()));
  }
}

at::ScalarType compute_type(const at::Tensor& x) {
  const at::DeviceType where = x.device().type();
  return at::autocast::is_autocast_enabled(where) ? at::autocast::get_autocast_dtype(where) : x.scalar_type();
}

WithoutAutocast::WithoutAutocast()
    : cpu_(at::autocast::is_autocast_enabled(at::kCPU)), cuda_(at::autocast::is_autocast_enabled(at::kCUDA)) {
  if (cpu_) at::autocast::set_autocast_enabled(at::kCPU, false);
  if (cuda_) at::autocast::set_autocast_enabled(at::kCUDA, false);
}

WithoutAutocast::~WithoutAutocast() {
  if (cpu_) at::autocast::set_autocast_enabled(at::kCPU, true);
  if (cuda_) at::autocast::set_autocast_enabled(at::kCUDA, true);
}

}  // namespace tandem
