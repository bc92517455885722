// telemetry/html_text.h -- text of strangers inside a page of ours.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

}  // namespace tandem
