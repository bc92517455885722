// telemetry/run_name.h -- what people call a run: "requirements" rather than web-agent-20261117-031502-k3m9qa.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// Of a run of a set its folder's name ("analysis", "analysis-conservative"), of one that trains agents their names
// ("analysis", "analysis, evolution", "analysis and 5 more"), else its recipe; empty if not even that is known.
std::string run_name(const std::filesystem::path& run_dir);

}  // namespace tandem
