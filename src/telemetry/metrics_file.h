// telemetry/metrics_file.h -- metrics.jsonl: appended while a run goes on, read by the report, cut back on resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "telemetry/metrics_line.h"
#include "telemetry/step_record.h"

namespace tandem {

// Appends records through a buffer. Lines reach the file in order and whole; a write that fails half-way (full disk) is
// continued at the very byte where it stopped, so a disk that has room again leaves no torn line in the middle.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::filesystem::path path);  // throws IoError
  ~MetricsWriter();                                    // flushes what it can
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void add(const StepRecord& record, double time = kAbsent);  // into the buffer; flushes past 64 KB
  void flush();                                 // to the kernel; throws IoError, the unwritten rest stays buffered
  int64_t dropped() const { return dropped_; }  // records given up because the disk stayed full for 4 MB

 private:
  std::filesystem::path path_;
  int fd_;
  static constexpr size_t kFlushAt = size_t{64} << 10;
  TextBuffer buffer_;
  size_t flush_at_ = kFlushAt;
  int64_t dropped_ = 0;
};

struct BadMetricsLine {
  int64_t line;  // counted from 1
  std::string reason;
};

struct MetricsRead {
  int64_t records = 0;
  std::vector<BadMetricsLine> bad;  // the first 100
  int64_t bad_count = 0;
  bool torn = false;  // the last line has no newline: a writer died in it, or writes it right now. Never delivered.
};

// Calls `take` for each good record in file order. Memory: one line (at most 1 MB) and one block. A file that is not
// there has no records. Throws IoError if it can't be read.
MetricsRead read_metrics(const std::filesystem::path& path, const std::function<void(const StepRecord&)>& take);
// The same on bytes in memory, in pieces of any size: what the fuzzer drives.
class MetricsParser {
 public:
  explicit MetricsParser(std::function<void(const StepRecord&)> take) : take_(std::move(take)) {}
  void feed(std::string_view bytes);
  MetricsRead finish();

 private:
  void line(std::string_view text);
  std::function<void(const StepRecord&)> take_;
  std::string pending_;
  bool skipping_ = false;  // inside a line that is too long
  int64_t line_number_ = 0;
  MetricsRead result_;
  StepRecord record_;
  std::string reason_;
};

// Drops records past `last_step`, a torn end and lines longer than any record; other lines, bad ones too, are kept byte
// for byte. Atomic: the file is the old one or the new one. Returns the number of records dropped. Throws IoError.
int64_t cut_metrics(const std::filesystem::path& path, int64_t last_step, FileSystem& fs = FileSystem::real());

}  // namespace tandem
