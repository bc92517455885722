// telemetry/event_log.h -- what happened in a run besides steps, for people (logs/rank-N.log) and for the report
// (events.jsonl): warnings, checkpoints, resumes, skipped updates, plans, faults.
//
// Both are appended with one write per line, so lines of a process are never torn by its death between two of them.
// They are history: a resume does not cut them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class LineFile {
 public:
  explicit LineFile(std::filesystem::path path);  // appends; throws IoError
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  void add(std::string_view line);  // adds the newline; throws IoError

 private:
  std::filesystem::path path_;
  int fd_;
};

struct RunEvent {
  double time = 0;  // Unix seconds
  std::string kind;
  int64_t step = 0;
  std::string text;
};

std::string event_line(const RunEvent& event);
// Good events in file order, at most the first 5,000 and the last 5,000; others are skipped.
std::vector<RunEvent> read_events(const std::filesystem::path& path);

// "2026-11-15T01:47:06.123Z warn  text", line breaks inside the text indented.
std::string log_line(double unix_seconds, std::string_view level, std::string_view text);

}  // namespace tandem
