// telemetry/report.h -- a run folder as one HTML page: curves, time per phase, settings, what happened when.
//
// One file that needs no network and runs nothing foreign: data, style and drawing code are inside. Series are thinned
// to at most 2,000 points each, so a million steps stay under 300 KB. Reads only files of the run folder; what is
// missing or damaged is left out and said on the page.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

std::string make_report(const std::filesystem::path& run_dir);
// make_report into <run_dir>/report.html, atomically; returns its path. Throws IoError.
std::filesystem::path write_report(const std::filesystem::path& run_dir);

}  // namespace tandem
