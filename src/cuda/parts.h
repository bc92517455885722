// cuda/parts.h -- kernels that recipes ask for by name (GPU::part), because a worker without a GPU has none of them.
#pragma once

#include <string>

namespace tandem::cuda {

void* part(const std::string& name);  // null: there is none

}  // namespace tandem::cuda
