// telemetry/report_parts.h -- parts of a page's data, each from one file of a run folder: those that the page of a run
// and the page of a set of runs share.
//
// What is missing or damaged is left out; texts are cut to a bounded width. Nothing throws for a bad file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "telemetry/event_log.h"
#include "telemetry/series.h"

namespace tandem {

double report_rounded(double value);  // five significant digits: more than a screen can show, and half the bytes
nlohmann::json report_series(const SeriesSet& set);
nlohmann::json report_events(std::vector<RunEvent> events, size_t most);
nlohmann::json report_run_part(const nlohmann::json& run);  // of run.json
nlohmann::json report_settings(const std::filesystem::path& run_dir, size_t most);
nlohmann::json report_env(const std::filesystem::path& run_dir);
nlohmann::json report_equity(const std::filesystem::path& run_dir);            // null: it has none
nlohmann::json report_evaluation(const std::filesystem::path& run_dir);        // agents of evaluation.json, for a plot
nlohmann::json report_evaluation_facts(const std::filesystem::path& run_dir);  // {"episodes","seed"}

}  // namespace tandem
