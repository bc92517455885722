// engine/kind.h -- what bits depend on beside the recipe: equal digests are promised between equal kinds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem {

// "cpu-x86_64-avx512-1a2b3c4d5e6f" or "cuda-9.0-132sm-1a2b3c4d5e6f": the device of this process, and a hash of its
// parts. Where a recipe's arithmetic is all ours (Recipe::has_own_arithmetic), a GPU's model and size, cuDNN and what
// libraries compute on it are no part of its kind: "cuda-9.0-1a2b3c4d5e6f".
std::string device_kind(bool own_arithmetic);
// CPU vendor, family, model and flags, or the GPU's model and size; libtorch, its libraries; our compiler and version.
nlohmann::json device_kind_parts(bool own_arithmetic);
nlohmann::json without_model(nlohmann::json parts);
std::string kind_of(const nlohmann::json& parts);

}  // namespace tandem
