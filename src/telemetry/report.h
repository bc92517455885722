// telemetry/report.h -- a run folder as one HTML page: curves, time per phase, settings, what happened when.
//
// One file that needs no network and runs nothing foreign: data, style and drawing code are inside. Series are thinned
// to at most 2,000 points each, so a million steps stay under 300 KB. Reads only files of the run folder; what is
// missing or damaged is left out and said on the page.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem {

// The page that draws `data` (telemetry/report_data.h says what is in it); a page of a set of runs is the same with
// more in it. `without_script`: HTML for readers that run none.
std::string report_page(const nlohmann::json& data, const std::string& without_script = "");

std::string make_report(const std::filesystem::path& run_dir);
// make_report into <run_dir>/report.html, atomically; returns its path. Throws IoError.
std::filesystem::path write_report(const std::filesystem::path& run_dir);

}  // namespace tandem
