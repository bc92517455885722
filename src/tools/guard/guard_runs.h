// tools/guard/guard_runs.h -- how fast the runs on a GPU go, from their own files: for the speed that a lower power
// limit costs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

// Steps per second over the last `window_s` seconds of a metrics.jsonl, by the stamps of its records.
std::optional<double> recent_rate(const std::filesystem::path& metrics_jsonl, double window_s);
std::optional<double> newest_step(const std::filesystem::path& metrics_jsonl);

// The runs of this root that are going on and use this GPU (-1: any), by their gpus.jsonl.
std::vector<std::filesystem::path> runs_on(const std::filesystem::path& root, int gpu);

}  // namespace tandem
