#include "video/class_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/errors.h"
#include "base/printable.h"
#include "market/csv_rows.h"

namespace tandem {
namespace {

constexpr size_t kLongestName = 64;

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// A name goes into tables, CSVs and file names: plain characters, and no number, which would be a label's.
bool is_good_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == ' ' || static_cast<unsigned char>(c) >= 0x80;
  };
  return !name.empty() && name.size() <= kLongestName && is_utf8(name) && std::ranges::all_of(name, is_plain) &&
         name.find_first_not_of("0123456789") != std::string_view::npos;
}

// Merges point at labels that stand alone, and there are not too many.
bool is_good_merge(const std::vector<std::pair<std::string, std::string>>& labels, const std::string& into) {
  return std::ranges::any_of(labels, [&](const auto& other) {
    return in_lower_case(other.first) == in_lower_case(into) && other.second.empty();
  });
}

}  // namespace

void ClassTable::add(const std::string& label, const std::string& into) {
  const std::string number = std::to_string(labels_.size());
  int16_t place;
  if (into.empty()) {
    place = static_cast<int16_t>(names_.size());
    names_.push_back(label);
  } else {
    const auto same = [&](const std::string& name) { return in_lower_case(name) == in_lower_case(into); };
    place = static_cast<int16_t>(std::ranges::find_if(names_, same) - names_.begin());
  }
  labels_.push_back(label);
  merged_.push_back(into);
  classes_[in_lower_case(label)] = place;
  classes_[number] = place;
}

ClassTable ClassTable::mouse(bool merge_withdraw) {
  ClassTable table;
  const std::string into = merge_withdraw ? "paw_withdraw" : "";
  for (const char* label : {"rest", "paw_withdraw", "paw_lick", "paw_guard", "paw_shake", "flinch", "walk", "active"}) {
    const std::string name = label;
    table.add(name, name == "paw_guard" || name == "flinch" ? into : "");
  }
  return table;
}

ClassTable ClassTable::of_names(const std::vector<std::string>& names) {
  ClassTable table;
  for (const std::string& name : names) {
    if (!is_good_name(name) || table.class_of(name))
      throw ConfigError(fmt::format("\"{}\" can't be the name of a class", printable(name)),
                        "names are letters, digits, spaces, _ and -, no numbers, and each is another",
                        "choose another name");
    table.add(name, "");
  }
  if (names.size() < 2 || names.size() > kMost)
    throw ConfigError(fmt::format("{} classes", names.size()), fmt::format("there can be 2 to {}", kMost),
                      "name more or fewer");
  return table;
}

ClassTable ClassTable::read(std::string_view text, const std::string& file, DataFindings& findings) {
  static const MarketColumn columns[] = {{"label"}, {"name"}, {"merge", false}};
  const int64_t before = findings.errors();
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<int64_t> lines;
  read_csv(text, file, columns, findings, [&](int64_t line, std::span<const std::string_view> fields) {
    const std::string name(fields[1]);
    if (fields[0] != std::to_string(labels.size()))
      findings.error(
          "label", file, line,
          fmt::format("label \"{}\" where {} comes next", printable(fields[0].substr(0, 20)), labels.size()));
    else if (!is_good_name(name))
      findings.error("name", file, line,
                     fmt::format("\"{}\" is no name: letters, digits, spaces, _ and -, and no number",
                                 printable(name.substr(0, 40))));
    else if (labels.size() >= kMost)
      findings.error("label", file, line, fmt::format("more than {} labels", kMost));
    else if (std::ranges::any_of(labels, [&](const auto& o) { return in_lower_case(o.first) == in_lower_case(name); }))
      findings.error("name", file, line, fmt::format("\"{}\" stands there twice", name));
    else
      labels.emplace_back(name, std::string(fields[2])), lines.push_back(line);
  });
  for (size_t i = 0; i < labels.size(); ++i)
    if (!labels[i].second.empty() && !is_good_merge(labels, labels[i].second))
      findings.error(
          "merge", file, lines[i],
          fmt::format("\"{}\" is no label that stands for itself", printable(labels[i].second.substr(0, 40))));
  ClassTable table;
  if (findings.errors() > before) return table;
  // Classes in the order of their labels; those that count as another come into it afterwards.
  for (const auto& [name, into] : labels)
    if (into.empty()) table.names_.push_back(name);
  if (table.size() < 2) {
    findings.error("label", file, 0, fmt::format("{} classes, where a model needs two to choose from", table.size()));
    return table;
  }
  for (const auto& [name, into] : labels) {
    table.add(name, into.empty() ? name : into);
    table.merged_.back() = into;
  }
  return table;
}

std::optional<int16_t> ClassTable::class_of(std::string_view label) const {
  const auto at = classes_.find(in_lower_case(label));
  if (at == classes_.end()) return std::nullopt;
  return at->second;
}

std::string ClassTable::csv() const {
  std::string out = "label,name,merge\n";
  for (size_t i = 0; i < labels_.size(); ++i) out += fmt::format("{},{},{}\n", i, labels_[i], merged_[i]);
  return out;
}

}  // namespace tandem
