// cuda/offered_kernels.h -- the kernels that this library offers to recipes (GpuDevice::kernels()).
#pragma once

#include "kernels/gpu/kernel_tables.h"

namespace tandem::cuda {

const KernelTables& offered_kernels();

}  // namespace tandem::cuda
