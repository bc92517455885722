#include "market/csv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>

#include "base/printable.h"

namespace tandem {

namespace {

std::string_view trimmed_field(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Fields point into the line, or, where quotes were taken off, into `kept`. False: a quote that does not end.
bool split_line(std::string_view line, std::vector<std::string_view>& fields, std::deque<std::string>& kept) {
  fields.clear();
  kept.clear();
  size_t at = 0;
  while (true) {
    const size_t start = line.find_first_not_of(" \t", at);
    if (start != std::string_view::npos && line[start] == '"') {
      std::string text;
      size_t i = start + 1;
      for (;; ++i) {
        if (i >= line.size()) return false;
        if (line[i] != '"')
          text += line[i];
        else if (i + 1 < line.size() && line[i + 1] == '"')
          text += line[i++];
        else
          break;
      }
      at = line.find(',', i);
      if (!trimmed_field(line.substr(i + 1, at == std::string_view::npos ? at : at - i - 1)).empty()) return false;
      fields.push_back(trimmed_field(kept.emplace_back(std::move(text))));
    } else {
      const size_t begin = at;
      at = line.find(',', at);
      fields.push_back(trimmed_field(line.substr(begin, at == std::string_view::npos ? at : at - begin)));
    }
    if (at == std::string_view::npos || fields.size() > kMostMarketColumns) return true;
    ++at;
  }
}

// Where each wanted column stands in the header, -1: nowhere. False: a required one is missing or stands there twice.
bool place_columns(const std::vector<std::string_view>& header, std::span<const MarketColumn> columns,
                   const std::string& file, int64_t line, DataFindings& findings, std::vector<int64_t>& places) {
  bool good = true;
  std::string missing;
  for (const MarketColumn& column : columns) {
    int64_t place = -1;
    for (size_t i = 0; i < header.size(); ++i) {
      if (lower_case(header[i]) != column.name) continue;
      if (place >= 0) {
        findings.error("columns", file, line, fmt::format("the column {} stands there twice", column.name));
        good = false;
      }
      place = static_cast<int64_t>(i);
    }
    if (place < 0 && column.required) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", column.name);
    places.push_back(place);
  }
  if (missing.empty()) return good;
  std::string found;
  for (size_t i = 0; i < header.size() && i < 12; ++i)
    found += fmt::format("{}{}", i ? ", " : "", header[i].substr(0, 40));
  findings.error(
      "columns", file, line,
      fmt::format("the header lacks {}; it has: {}{}", missing, printable(found), header.size() > 12 ? ", ..." : ""));
  return false;
}

}  // namespace

bool read_csv(std::string_view text, const std::string& file, std::span<const MarketColumn> columns,
              DataFindings& findings,
              const std::function<void(int64_t line, std::span<const std::string_view> fields)>& take) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> fields, wanted(columns.size());
  std::deque<std::string> kept;
  std::vector<int64_t> places;
  size_t header_fields = 0;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (trimmed_field(line).empty()) continue;
    const bool whole =
        line.size() <= kLongestCsvLine && split_line(line, fields, kept) && fields.size() <= kMostMarketColumns;
    if (!whole) {
      findings.error("line", file, line_number, "the line is too long, has too many fields, or a quote does not end");
      if (header_fields == 0) return false;
      continue;
    }
    if (header_fields == 0) {
      header_fields = fields.size();
      if (!place_columns(fields, columns, file, line_number, findings, places)) return false;
      continue;
    }
    if (fields.size() != header_fields) {
      findings.error("line", file, line_number,
                     fmt::format("{} fields where the header has {}", fields.size(), header_fields));
      continue;
    }
    for (size_t i = 0; i < places.size(); ++i)
      wanted[i] = places[i] < 0 ? std::string_view() : fields[static_cast<size_t>(places[i])];
    take(line_number, wanted);
  }
  if (header_fields > 0) return true;
  findings.error("columns", file, 0, "the file is empty: it has no header");
  return false;
}

std::optional<double> parse_number(std::string_view field) {
  if (field.starts_with('+')) field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || field.empty()) return std::nullopt;
  return value;
}

}  // namespace tandem
