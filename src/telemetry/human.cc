#include "telemetry/human.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>

namespace tandem {
namespace {

// One code point from the front of `text`; a byte that is not UTF-8 counts as one character of its own.
char32_t take_code_point(std::string_view text, size_t& size) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  size = lead < 0x80                   ? 1
         : lead >= 0xF0 && lead < 0xF8 ? 4
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xC2 && lead < 0xE0 ? 2
                                       : 1;
  if (size == 1) return lead;
  if (text.size() < size) return size = 1, lead;
  char32_t code = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return size = 1, lead;
    code = code << 6 | (byte(i) & 0x3F);
  }
  return code;
}

int columns_of(char32_t c) {
  if (c >= 0x300 && c <= 0x36F) return 0;
  if (c == 0x200B || c == 0x200D || (c >= 0xFE00 && c <= 0xFE0F)) return 0;
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) || (c >= 0xAC00 && c <= 0xD7A3) ||
                    (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

std::tm utc(double unix_seconds) {
  const auto whole = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  return parts;
}

}  // namespace

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string utc_iso(double unix_seconds, bool milliseconds) {
  if (!(std::abs(unix_seconds) < 1e11)) return "-";
  const auto millis = static_cast<int64_t>(std::llround(unix_seconds * 1000));
  if (milliseconds) unix_seconds = std::floor(static_cast<double>(millis) / 1000);
  const std::tm t = utc(unix_seconds);
  const std::string head = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                                       t.tm_hour, t.tm_min, t.tm_sec);
  if (!milliseconds) return head + "Z";
  return fmt::format("{}.{:03}Z", head, millis - static_cast<int64_t>(unix_seconds) * 1000);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "-";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, rest);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  static constexpr struct {
    double unit;
    char letter;
  } kUnits[] = {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}};
  if (size >= 1e15) return fmt::format("{:.2e}", value);
  for (const auto& [unit, letter] : kUnits)
    if (size >= unit * 0.9995) return fmt::format("{:.3g}{}", value / unit, letter);
  return fmt::format("{:.3g}", value);
}

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5 && unit < 6) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, kNames[unit]);
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "-";
  const double size = std::abs(loss);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) return fmt::format("{:.3e}", loss);
  return size < 10 ? fmt::format("{:.4f}", loss) : fmt::format("{:.5g}", loss);
}

int display_width(std::string_view text) {
  int columns = 0;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) columns += columns_of(take_code_point(text, size));
  return columns;
}

std::string fit(std::string_view text, int width) {
  const bool cut = display_width(text) > width;
  int room = cut ? width - 1 : width;  // one column for the mark
  std::string out;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    const char32_t c = take_code_point(text, size);
    if (columns_of(c) > room) break;
    room -= columns_of(c);
    if (c < 0x20 || (c >= 0x7F && c < 0xA0))  // of both sets of control characters, and bytes that are no UTF-8
      out += ' ';
    else
      out.append(text.substr(0, size));
  }
  if (cut && width > 0) out += '~';
  return out;
}

}  // namespace tandem
