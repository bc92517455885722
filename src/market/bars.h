// market/bars.h -- daily bars of a symbol from CSV text, and what is wrong with them.
//
// Columns date, open, high, low, close, volume, in any order, with a header (csv_rows.h); dates as in dates.h, one bar
// a day, in order. Prices are expected after splits (and, as the user likes, after dividends).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/csv_rows.h"
#include "market/data_findings.h"

namespace tandem {

struct Bar {
  double open = 0, high = 0, low = 0, close = 0, volume = 0;
  int32_t date = 0;  // 20241231
  int64_t line = 0;  // of the file; 0: from none
};

struct SymbolBars {
  std::string symbol, file;
  std::vector<Bar> bars;
};

inline constexpr double kLowestPrice = 1e-6, kHighestPrice = 1e9;
inline constexpr int64_t kGapDays = 7;      // calendar days without a bar: more is a warning; holidays are shorter
inline constexpr int64_t kBrokenDays = 45;  // more is an error: one window would show two times as one
inline constexpr double kBarSlack = 0.002;  // open or close out of [low, high] by more than this share is an error

struct BarRules {
  int64_t least_bars = 0;     // fewer are an error
  int32_t today = 0;          // later dates are errors; 0: not looked at
  bool accept_jumps = false;  // what looks like a split is a warning, not an error
};

std::span<const MarketColumn> bar_columns();

// Every line that can be read becomes a bar; the others become findings.
SymbolBars read_bars(std::string_view text, std::string symbol, std::string file, DataFindings& findings);

// Prices <= 0, high < low, open or close outside, dates twice, out of order or in the future, gaps, probable splits,
// too few bars.
void check_bars(const SymbolBars& symbol, const BarRules& rules, DataFindings& findings);

// "2-for-1" or "1-for-10", where an overnight change from `close` to `open` is within 2.5 % of a usual split; else "".
std::string probable_split(double close, double open);

}  // namespace tandem
