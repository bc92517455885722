#include "market/data_findings.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/printable.h"
#include "base/shell_word.h"

namespace tandem {

std::string DataFinding::place() const {
  return line > 0 ? fmt::format("{}:{}", printable(file), line) : printable(file);
}

std::string DataFinding::render() const {
  return fmt::format("{:<8} {}: {}: {}", level == FindingLevel::kError ? "error" : "warning", place(), kind, text);
}

void DataFindings::add(FindingLevel level, std::string kind, const std::string& file, int64_t line, std::string text) {
  ++(level == FindingLevel::kError ? errors_ : warnings_);
  if (++counts_[{file, kind}] > kNamed) return;
  list_.push_back({level, std::move(kind), file, line, std::move(text)});
}

std::string DataFindings::render() const {
  std::string out;
  for (const DataFinding& finding : list_) out += finding.render() + "\n";
  for (const auto& [key, count] : counts_)
    if (count > kNamed)
      out += fmt::format("         and {} more of kind {} in {}\n", count - kNamed, key.second, printable(key.first));
  return out;
}

std::vector<std::string> DataFindings::warning_lines() const {
  std::vector<std::string> lines;
  for (const DataFinding& finding : list_)
    if (finding.level == FindingLevel::kWarning) lines.push_back(fmt::format("{}: {}", finding.place(), finding.text));
  for (const auto& [key, count] : counts_)
    if (count > kNamed)
      lines.push_back(fmt::format("{}: {} more of kind {}", printable(key.first), count - kNamed, key.second));
  return lines;
}

void DataFindings::refuse_errors(const std::string& folder) const {
  if (errors_ == 0) return;
  constexpr int kShown = 3;
  std::string why;
  int shown = 0;
  for (const DataFinding& finding : list_) {
    if (finding.level != FindingLevel::kError) continue;
    if (shown++ == kShown) break;
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", finding.place(), finding.text);
  }
  if (errors_ > kShown) why += fmt::format("; and {} more", errors_ - kShown);
  throw ConfigError(
      fmt::format("the market data in {} {}", printable(folder),
                  errors_ == 1 ? "has an error" : fmt::format("have {} errors", errors_)),
      why, fmt::format("see all with `tandem data check options {}`, and correct the files", shell_word(folder)));
}

}  // namespace tandem
