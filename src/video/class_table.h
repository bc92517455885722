// video/class_table.h -- what the actions are called, and which of them count as one.
//
// A label is what an annotation says, a number or a name; a class is what a model tells apart. Several labels may be
// one class. Without a table of their own, videos have the labels of the mouse behaviour set: rest, paw_withdraw,
// paw_lick, paw_guard, paw_shake, flinch, walk, active, numbered from 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "market/data_findings.h"

namespace tandem {

class ClassTable {
 public:
  static constexpr int32_t kMost = 64;

  // The eight labels above. `merge_withdraw`: guard and flinch count as paw_withdraw, which leaves six classes.
  static ClassTable mouse(bool merge_withdraw);
  // One class for each name, in this order. Throws ConfigError for names that are empty, equal or too many.
  static ClassTable of_names(const std::vector<std::string>& names);
  // A CSV with the columns `label` (numbers 0, 1, 2, ... in order) and `name`, and, where a label counts as another,
  // that one's name in `merge`. What is wrong goes to `findings`; the table is then not to be used.
  static ClassTable read(std::string_view text, const std::string& file, DataFindings& findings);

  int32_t size() const { return static_cast<int32_t>(names_.size()); }  // classes
  const std::vector<std::string>& names() const { return names_; }      // of classes
  const std::vector<std::string>& labels() const { return labels_; }    // by number
  // The class of "3" or "paw_guard"; without regard to case. Nothing: there is no such label.
  std::optional<int16_t> class_of(std::string_view label) const;
  std::string csv() const;  // what read() takes

 private:
  void add(const std::string& label, const std::string& into);

  std::vector<std::string> names_, labels_;
  std::vector<std::string> merged_;         // of each label: the one that it counts as, or empty
  std::map<std::string, int16_t> classes_;  // by label, lower case, and by number
};

}  // namespace tandem
