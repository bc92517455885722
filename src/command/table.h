// command/table.h -- columns of text as wide as they need to be.
#pragma once

#include <string>
#include <vector>

namespace tandem {

class Table {
 public:
  // One mark a column: '<' to the left, '>' to the right.
  Table(std::vector<std::string> header, std::string align) : align_(std::move(align)) { row(std::move(header)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;

 private:
  std::string align_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tandem
