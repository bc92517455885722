// telemetry/confusion_table.h -- a confusion matrix among a step's metrics: a cell each,
// "validation/confusion[rest|walk]" (true class, predicted class). Tools draw them as one table, and as no curves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/step_record.h"

namespace tandem {

struct ConfusionTable {
  std::string set;                   // "validation"
  std::vector<std::string> classes;  // in the order in which they first come as true ones
  std::vector<double> cells;         // row by row, a row for each true class
  double at(size_t truth, size_t predicted) const { return cells[truth * classes.size() + predicted]; }
  bool operator==(const ConfusionTable&) const = default;
};

inline constexpr size_t kMostTableClasses = 32;

// "confusion[rest|walk]", without the set that the engine puts before it.
std::string confusion_cell(std::string_view truth, std::string_view predicted);
bool is_confusion_cell(std::string_view metric);  // with the set or without it
// The tables whose cells are all there, each once; more than kMostTableClasses classes: not its affair.
std::vector<ConfusionTable> confusion_tables(const NamedValues& metrics);

// As a picture for TensorBoard: a PNG, dark where a class is taken for itself or another often, with the share of the
// row in each cell. Rows are true classes. The same bytes for the same table.
struct Picture {
  int width = 0, height = 0;
  std::string png;
};
Picture confusion_picture(const ConfusionTable& table);

}  // namespace tandem
