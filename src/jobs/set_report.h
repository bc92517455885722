// jobs/set_report.h -- the page of a set: its agents in one table, who worked on what, the scores as they grew.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// One HTML page that needs no network and runs no script; it links the pages of the agents' own runs.
std::string make_set_report(const std::filesystem::path& dir);
std::filesystem::path write_set_report(const std::filesystem::path& dir);  // into report.html; throws IoError

}  // namespace tandem
