#include "monitor/clean_text.h"

#include <cstdint>

namespace tandem {
namespace {

// Bytes of the character at the front of `text`, strictly: no overlong forms, no surrogates. 0: not UTF-8.
size_t character(std::string_view text, char32_t& code) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  code = lead;
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xF0 && lead <= 0xF4  ? 4
                      : lead >= 0xE0 && lead < 0xF0 ? 3
                      : lead >= 0xC2 && lead < 0xE0 ? 2
                                                    : 0;
  if (size == 0) return 0;
  code = lead & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0 : size;
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string clean_text(std::string_view text, size_t most) {
  constexpr std::string_view kBroken = "\xEF\xBF\xBD", kCut = "\xE2\x80\xA6";
  std::string out;
  size_t fits = 0;  // of `out`, with the mark behind it
  while (!text.empty()) {
    char32_t code = 0;
    const size_t size = character(text, code);
    if (size == 0)
      out += kBroken;
    else if (is_control(code))
      out += ' ';
    else
      out.append(text.substr(0, size));
    text.remove_prefix(size == 0 ? 1 : size);
    if (out.size() + kCut.size() <= most) fits = out.size();
    if (out.size() > most) return out.substr(0, fits).append(kCut);
  }
  return out;
}

}  // namespace tandem
