// market/data_findings.h -- what is wrong with a file of market data, by file and line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Training refuses data with an error; a warning is worth a look.
enum class FindingLevel { kWarning, kError };

struct DataFinding {
  FindingLevel level = FindingLevel::kError;
  std::string kind;  // "gap", "split", "duplicate", ...: one word, stable
  std::string file;
  int64_t line = 0;  // from 1, the header's line included; 0: the whole file
  std::string text;
  std::string render() const;  // "error    AAPL.csv:17: gap: ..."
  std::string place() const;   // "AAPL.csv:17", "AAPL.csv"
};

// Collects them; of one kind in one file the first kNamed are kept, the others are counted.
class DataFindings {
 public:
  static constexpr int64_t kNamed = 20;

  void add(FindingLevel level, std::string kind, const std::string& file, int64_t line, std::string text);
  void error(std::string kind, const std::string& file, int64_t line, std::string text) {
    add(FindingLevel::kError, std::move(kind), file, line, std::move(text));
  }
  void warning(std::string kind, const std::string& file, int64_t line, std::string text) {
    add(FindingLevel::kWarning, std::move(kind), file, line, std::move(text));
  }
  const std::vector<DataFinding>& list() const { return list_; }
  int64_t errors() const { return errors_; }      // all, also those that were only counted
  int64_t warnings() const { return warnings_; }  // the same
  // One line each, in the order of finding, with "and 12 more of kind gap in AAPL.csv" for what was only counted.
  std::string render() const;
  // Of the warnings alone, without their level and kind: "AAPL.csv:17: ...".
  std::vector<std::string> warning_lines() const;
  // Throws ConfigError with the first few errors, if there are any. `folder` is for the message.
  void refuse_errors(const std::string& folder) const;

 private:
  std::vector<DataFinding> list_;
  std::map<std::pair<std::string, std::string>, int64_t> counts_;  // by file and kind
  int64_t errors_ = 0, warnings_ = 0;
};

}  // namespace tandem
