#include "telemetry/confusion_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr std::string_view kName = "confusion[";

struct Cell {
  std::string_view set, truth, predicted;
};

bool parse_cell(std::string_view metric, Cell& cell) {
  const size_t name = metric.find(kName);
  if (name == metric.npos || !metric.ends_with(']')) return false;
  if (name > 0 && metric[name - 1] != '/') return false;
  const size_t bar = metric.find('|', name);
  if (bar == metric.npos) return false;
  const size_t begin = name + kName.size();
  cell.set = metric.substr(0, name > 0 ? name - 1 : 0);
  cell.truth = metric.substr(begin, bar - begin);
  cell.predicted = metric.substr(bar + 1, metric.size() - bar - 2);
  return true;
}

// Puts each cell in its place. False: one is missing, or there is one too many.
bool fill(ConfusionTable& table, const NamedValues& metrics) {
  const size_t n = table.classes.size();
  table.cells.assign(n * n, kAbsent);
  size_t filled = 0;
  Cell cell;
  for (const auto& [name, value] : metrics) {
    if (!parse_cell(name, cell) || cell.set != table.set) continue;
    const auto truth = std::ranges::find(table.classes, cell.truth) - table.classes.begin();
    const auto predicted = std::ranges::find(table.classes, cell.predicted) - table.classes.begin();
    if (predicted == static_cast<int64_t>(n)) return false;
    table.cells[static_cast<size_t>(truth) * n + static_cast<size_t>(predicted)] = value;
    ++filled;
  }
  return filled == n * n;
}

}  // namespace

std::string confusion_cell(std::string_view truth, std::string_view predicted) {
  return fmt::format("{}{}|{}]", kName, truth, predicted);
}

bool is_confusion_cell(std::string_view metric) {
  Cell cell;
  return parse_cell(metric, cell);
}

std::vector<ConfusionTable> confusion_tables(const NamedValues& metrics) {
  std::vector<ConfusionTable> tables;
  Cell cell;
  for (const auto& metric : metrics) {
    if (!parse_cell(metric.first, cell)) continue;
    auto at = std::ranges::find(tables, cell.set, &ConfusionTable::set);
    if (at == tables.end()) at = tables.insert(at, {std::string(cell.set), {}, {}});
    if (std::ranges::find(at->classes, cell.truth) == at->classes.end()) at->classes.emplace_back(cell.truth);
  }
  std::erase_if(
      tables, [&](ConfusionTable& table) { return table.classes.size() > kMostTableClasses || !fill(table, metrics); });
  return tables;
}

}  // namespace tandem
