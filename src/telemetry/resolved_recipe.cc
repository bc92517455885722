#include "telemetry/resolved_recipe.h"

namespace tandem {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Where the comment begins: the first # outside quotes.
size_t comment_start(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == '"' && c == '\\')
      ++i;
    else if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '#')
      return i;
  }
  return line.size();
}

}  // namespace

std::vector<ResolvedSetting> read_resolved_recipe(std::string_view toml) {
  std::vector<ResolvedSetting> settings;
  std::string table;
  while (!toml.empty()) {
    const size_t end = std::min(toml.find('\n'), toml.size());
    const std::string_view line = toml.substr(0, end);
    toml.remove_prefix(std::min(end + 1, toml.size()));

    const size_t comment = comment_start(line);
    const std::string_view text = trimmed(line.substr(0, comment));
    if (text.starts_with('[') && text.ends_with(']')) {
      table = std::string(trimmed(text.substr(1, text.size() - 2))) + ".";
      continue;
    }
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view value = trimmed(text.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"' && value.find('\\') == value.npos)
      value = value.substr(1, value.size() - 2);
    const std::string_view source = comment < line.size() ? trimmed(line.substr(comment + 1)) : std::string_view();
    settings.push_back({table + std::string(trimmed(text.substr(0, equals))), std::string(value), std::string(source)});
  }
  return settings;
}

}  // namespace tandem
