#include "market/bars.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>

#include "base/printable.h"
#include "market/dates.h"

namespace tandem {

namespace {

const MarketColumn kBarColumns[] = {{"date"}, {"open"}, {"high"}, {"low"}, {"close"}, {"volume"}};

std::string shown_field(std::string_view field) {
  return field.empty() ? "nothing" : fmt::format("'{}'", printable(field.substr(0, 40)));
}

// Each number of a bar, or a finding that names the first column that has none.
bool parse_bar(std::span<const std::string_view> fields, const std::string& file, int64_t line, DataFindings& findings,
               Bar& bar) {
  const auto date = parse_date(fields[0]);
  if (!date) {
    findings.error("date", file, line,
                   fmt::format("the date is {}, expected YYYY-MM-DD or YYYYMMDD", shown_field(fields[0])));
    return false;
  }
  bar.date = *date;
  bar.line = line;
  double* const numbers[] = {&bar.open, &bar.high, &bar.low, &bar.close, &bar.volume};
  for (size_t i = 0; i < 5; ++i) {
    const std::string& name = kBarColumns[i + 1].name;
    const auto number = parse_number(fields[i + 1]);
    if (!number) {
      findings.error("number", file, line,
                     fmt::format("{} is {}, which is no number", name, shown_field(fields[i + 1])));
      return false;
    }
    if (!std::isfinite(*number)) {
      findings.error("nan", file, line, fmt::format("{} is {}", name, *number));
      return false;
    }
    *numbers[i] = *number;
  }
  return true;
}

void check_prices(const Bar& bar, const std::string& file, DataFindings& findings) {
  const std::pair<const char*, double> prices[] = {
      {"open", bar.open}, {"high", bar.high}, {"low", bar.low}, {"close", bar.close}};
  for (const auto& [name, price] : prices) {
    if (price <= 0)
      return findings.error("price", file, bar.line, fmt::format("{} is {}: a price is above 0", name, price));
    if (price < kLowestPrice || price > kHighestPrice)
      return findings.error("price", file, bar.line,
                            fmt::format("{} is {:g}: expected {:g} to {:g}", name, price, kLowestPrice, kHighestPrice));
  }
  if (bar.volume < 0)
    findings.error("volume", file, bar.line, fmt::format("volume is {}: it is never below 0", bar.volume));
  else if (bar.volume == 0)
    findings.warning("volume", file, bar.line, "volume is 0: nothing was traded, or it is not known");
  if (bar.high < bar.low)
    return findings.error("range", file, bar.line, fmt::format("high {} is below low {}", bar.high, bar.low));
  for (const auto& [name, price] : {prices[0], prices[3]}) {
    const double beyond = price > bar.high ? price / bar.high - 1 : price < bar.low ? bar.low / price - 1 : 0;
    if (beyond <= 1e-9) continue;  // prices that an adjustment has rounded
    findings.add(beyond > kBarSlack ? FindingLevel::kError : FindingLevel::kWarning, "range", file, bar.line,
                 fmt::format("{} {} is outside of low {} to high {}", name, price, bar.low, bar.high));
  }
}

void check_order(const Bar& before, const Bar& bar, const std::string& file, DataFindings& findings) {
  if (bar.date < before.date)
    return findings.error(
        "order", file, bar.line,
        fmt::format("{} stands after {}: dates must rise", date_text(bar.date), date_text(before.date)));
  const int64_t days = day_number(bar.date) - day_number(before.date);
  if (days > kGapDays)
    findings.add(days > kBrokenDays ? FindingLevel::kError : FindingLevel::kWarning, "gap", file, bar.line,
                 fmt::format("{} days without a bar, {} to {}", days, date_text(before.date), date_text(bar.date)));
}

}  // namespace

std::span<const MarketColumn> bar_columns() { return kBarColumns; }

SymbolBars read_bars(std::string_view text, std::string symbol, std::string file, DataFindings& findings) {
  SymbolBars out{std::move(symbol), std::move(file), {}};
  read_csv(text, out.file, kBarColumns, findings, [&](int64_t line, std::span<const std::string_view> fields) {
    Bar bar;
    if (parse_bar(fields, out.file, line, findings, bar)) out.bars.push_back(bar);
  });
  return out;
}

std::string probable_split(double close, double open) {
  struct Split {
    int shares, of;
  };
  constexpr Split kUsual[] = {{3, 2},  {2, 1},  {3, 1},  {4, 1},  {5, 1},  {6, 1},  {7, 1},  {8, 1},
                              {10, 1}, {15, 1}, {20, 1}, {25, 1}, {30, 1}, {50, 1}, {100, 1}};
  const double change = close / open;
  for (const auto& [shares, of] : kUsual) {
    const double ratio = static_cast<double>(shares) / of;
    if (std::fabs(change / ratio - 1) < 0.025) return fmt::format("{}-for-{}", shares, of);
    if (of == 1 && std::fabs(change * ratio - 1) < 0.025) return fmt::format("1-for-{}", shares);
  }
  return "";
}

void check_bars(const SymbolBars& symbol, const BarRules& rules, DataFindings& findings) {
  const std::string& file = symbol.file;
  std::set<int32_t> seen;
  const Bar* before = nullptr;
  for (const Bar& bar : symbol.bars) {
    check_prices(bar, file, findings);
    if (rules.today > 0 && bar.date > rules.today)
      findings.error("future", file, bar.line,
                     fmt::format("{} is in the future (today is {})", date_text(bar.date), date_text(rules.today)));
    if (!seen.insert(bar.date).second) {
      findings.error("duplicate", file, bar.line, fmt::format("{} stands there twice", date_text(bar.date)));
      continue;
    }
    if (before) {
      check_order(*before, bar, file, findings);
      const std::string split = before->close > 0 && bar.open > 0 ? probable_split(before->close, bar.open) : "";
      if (!split.empty() && bar.date > before->date)
        findings.add(rules.accept_jumps ? FindingLevel::kWarning : FindingLevel::kError, "split", file, bar.line,
                     fmt::format("close {} of {}, then open {}: probably a {} split that prices were not adjusted for",
                                 before->close, date_text(before->date), bar.open, split));
    }
    if (!before || bar.date > before->date) before = &bar;
  }
  if (static_cast<int64_t>(symbol.bars.size()) < rules.least_bars)
    findings.error("short", file, 0,
                   fmt::format("{} days; at least {} are needed for the features and one window", symbol.bars.size(),
                               rules.least_bars));
}

}  // namespace tandem
