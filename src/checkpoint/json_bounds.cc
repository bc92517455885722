#include "checkpoint/json_bounds.h"

#include <fmt/format.h>

#include <cctype>

namespace tandem {

std::optional<std::string> json_bound_crossed(std::string_view text, const JsonBounds& bounds) {
  std::size_t depth = 0, values = 1, token = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (++token > bounds.token) return fmt::format("holds a string, number or gap of more than {} bytes", bounds.token);
    if (in_string) {
      if (c == '\\') ++i, ++token;
      if (c == '"') in_string = false;
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        token = 0;
        break;
      case '{':
      case '[':
        if (++depth > bounds.depth) return fmt::format("is nested deeper than {} levels", bounds.depth);
        [[fallthrough]];
      case ',':
        if (++values > bounds.values) return fmt::format("holds more than {} values", bounds.values);
        [[fallthrough]];
      case ':':
        token = 0;
        break;
      case ' ':
      case '\n':
      case '\r':
      case '\t':  // a run of white space is a token too: the parser keeps it for its messages
        if (i > 0 && !std::isspace(static_cast<unsigned char>(text[i - 1]))) token = 0;
        break;
      case '}':
      case ']':
        if (depth > 0) --depth;  // one too many: the parser will say so
        token = 0;
        break;
      default:
        break;
    }
  }
  return std::nullopt;
}

}  // namespace tandem
