// engine/kind.h -- what bits depend on beside the recipe: equal digests are promised between equal kinds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem {

// "cpu-x86_64-avx512-1a2b3c4d5e6f": device, vector width, and a hash of kind_parts().
std::string cpu_kind();
// CPU vendor, family, model and flags; libtorch, its BLAS; our compiler and version.
nlohmann::json cpu_kind_parts();

}  // namespace tandem
