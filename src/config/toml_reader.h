// config/toml_reader.h -- a TOML text as a flat list of (dotted key, value, line).
//
// The only place that sees toml++, which costs many seconds to compile. Input is a stranger's: size and nesting are
// bounded, broken text is a ConfigError that names file and line, never a crash.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace tandem {

struct TomlItem {
  std::string key;
  Value value;
  int line = 0;         // counted from 1
  std::string comment;  // what follows '#' on the value's line, trimmed
};

inline constexpr size_t kLargestToml = size_t{1} << 20;

std::vector<TomlItem> read_toml(std::string_view text, std::string_view source_name);

}  // namespace tandem
