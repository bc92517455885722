// jobs/set_report.h -- the pages of a set: report.html (its agents, who worked on what, scores as they grew, settings,
// events, evaluation) and evaluation.html (how good the agents are). Both have the look of a run's report, whose style
// and drawing code they use.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// One file that needs no network. It links the pages of the agents' own runs. Files that are missing or damaged are
// left out; nothing throws for them.
std::string make_set_report(const std::filesystem::path& dir);
std::filesystem::path write_set_report(const std::filesystem::path& dir);  // into report.html; throws IoError

std::string make_evaluation_page(const std::filesystem::path& dir);

}  // namespace tandem
