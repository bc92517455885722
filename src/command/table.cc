#include "command/table.h"

#include <algorithm>

#include "telemetry/human.h"

namespace tandem {

std::string Table::text() const {
  std::vector<int> widths(align_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      const std::string blank(static_cast<size_t>(widths[i] - display_width(row[i])), ' ');
      if (i > 0) line += "   ";
      line += align_[i] == '>' ? blank + row[i] : row[i] + blank;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tandem
