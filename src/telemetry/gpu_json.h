// telemetry/gpu_json.h -- a GPU's facts and readings as JSON: numbers without units, units in the keys, what is not
// known left out.
#pragma once

#include <nlohmann/json.hpp>

#include "hardware/gpu.h"

namespace tandem {

nlohmann::json to_json(const GpuFacts& facts);
nlohmann::json to_json(const GpuReading& reading);

}  // namespace tandem
