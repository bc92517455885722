// apps/video/findings_json.h -- what is wrong with files of data, for scripts.
#pragma once

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "market/data_findings.h"

namespace tandem {

inline nlohmann::json findings_json(const DataFindings& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const DataFinding& one : findings.list())
    list.push_back({{"level", one.level == FindingLevel::kError ? "error" : "warning"},
                    {"kind", one.kind},
                    {"file", printable(one.file)},
                    {"line", one.line > 0 ? nlohmann::json(one.line) : nlohmann::json()},
                    {"text", printable(one.text)}});
  return list;
}

}  // namespace tandem
