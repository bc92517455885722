// telemetry/report_gpus.h -- the GPUs, the energy and the speed of a run, cut down to what its report draws.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tandem {

// gpus.jsonl as curves over time: [{"name": "GPU 0", "x": [seconds], "power": [...], "temp": [...], "limit": [...]}].
// At most `most_points` each, means of what lies between; what was not reported is null. Empty without such a file.
nlohmann::json report_gpus(const std::filesystem::path& run_dir, size_t most_points);
// energy.json, names and numbers only; null without one.
nlohmann::json report_energy(const std::filesystem::path& run_dir);
// explain.json, what was found and the shares of a step; null without one.
nlohmann::json report_explain(const std::filesystem::path& run_dir);

}  // namespace tandem
