// telemetry/resolved_recipe.h -- the settings in a run's recipe.toml as text: key, value, and who set it.
//
// Reads only what tandem itself writes: tables, one `key = value   # source` a line. For showing and comparing; whoever
// needs values uses config/, which this folder must not know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct ResolvedSetting {
  std::string key;  // with its table: optimizer.learning_rate
  std::string value, source;
};

std::vector<ResolvedSetting> read_resolved_recipe(std::string_view toml);

}  // namespace tandem
