// market/csv_rows.h -- rows of a CSV text with a header, by column name; any bytes are safe.
//
// Names are compared without regard to case and to spaces around them; columns may be in any order, others are
// ignored. Fields may be quoted ("a, ""b""") but hold no line break. A byte-order mark, CRLF and empty lines are fine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/data_findings.h"

namespace tandem {

inline constexpr size_t kLongestCsvLine = size_t{1} << 16;
inline constexpr size_t kMostMarketColumns = 256;

struct MarketColumn {
  std::string name;
  bool required = true;
};

// Calls `take` for each row, with its line (from 1) and the wanted columns' fields in the order of `columns`; a column
// that is not there and not required is empty in every row. Missing columns and rows with another number of fields than
// the header go to `findings`. False: there is no usable header, and `take` was never called.
bool read_csv(std::string_view text, const std::string& file, std::span<const MarketColumn> columns,
              DataFindings& findings,
              const std::function<void(int64_t line, std::span<const std::string_view> fields)>& take);

// A whole field as a number; nothing where it is none. "nan" and "inf" are numbers.
std::optional<double> parse_number(std::string_view field);

}  // namespace tandem
