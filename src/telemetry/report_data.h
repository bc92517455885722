// telemetry/report_data.h -- what the report shows, collected from a run folder; the page only draws it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tandem {

struct ReportLimits {
  size_t most_buckets = 1000;  // a curve drawn as least and greatest has twice as many points
  size_t most_events = 300;
  size_t most_settings = 400;
};

// {"run","status","facts","settings","series","phases","events","skips","notes","env"}; see report_page.js.
nlohmann::json collect_report(const std::filesystem::path& run_dir, const ReportLimits& limits = {});

}  // namespace tandem
