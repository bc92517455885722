#include "engine/precision.h"

#include <ATen/autocast_mode.h>

#include "kernels/device.h"

namespace tandem {
namespace {

at::DeviceType autocast_device() { return device().is_cuda() ? at::kCUDA : at::kCPU; }

}  // namespace

PrecisionScope::PrecisionScope(std::string_view precision)
    : was_enabled_(at::autocast::is_autocast_enabled(autocast_device())) {
  const bool enable = precision == "bf16" || precision == "fp16";
  changed_ = enable || was_enabled_;
  if (!changed_) return;
  was_dtype_ = static_cast<int>(at::autocast::get_autocast_dtype(autocast_device()));
  at::autocast::set_autocast_enabled(autocast_device(), enable);
  if (enable) at::autocast::set_autocast_dtype(autocast_device(), precision == "fp16" ? at::kHalf : at::kBFloat16);
  at::autocast::increment_nesting();
}

PrecisionScope::~PrecisionScope() {
  if (!changed_) return;
  // Casts of the weights are cached while any scope is open; they belong to one forward only.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(autocast_device(), was_enabled_);
  at::autocast::set_autocast_dtype(autocast_device(), static_cast<at::ScalarType>(was_dtype_));
}

}  // namespace tandem
