// monitor/formats.h -- a sample in the forms that other programs read: JSON, CSV, Prometheus' text, and a page of text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "monitor/sample.h"

namespace tandem {

// Numbers without units, units in the names; a value that could not be read has no key.
nlohmann::json to_json(const MonitorSample& sample);

// One header, then per sample a line for the machine, for each GPU and for each run; a value that could not be read is
// an empty cell.
std::string csv_header();
std::string csv_lines(const MonitorSample& sample);

// Prometheus' text exposition format 0.0.4.
std::string prometheus_text(const MonitorSample& sample);

// For people, `width` columns at most.
std::string snapshot_text(const MonitorSample& sample, int width = 100);

}  // namespace tandem
