// explain/times_log.h -- ranks.jsonl of a run: about every second a line with where each worker's time went, so far.
//
// Sums since the run was started, over all processes that a rank had: any two lines of one start give the time between
// them, so lines may be dropped. Once there are kMostLines or kMostBytes (of many workers) every second one is, and
// half as many are written from then on. A line with a smaller step or sum than the one before begins another start. A
// full disk only costs lines.
#pragma once

#include <filesystem>
#include <map>

#include "explain/rank_times.h"

namespace tandem {

class TimesLog {
 public:
  static constexpr size_t kMostLines = 2000, kMostBytes = 4 << 20;
  explicit TimesLog(std::filesystem::path path, size_t most_lines = kMostLines, size_t most_bytes = kMostBytes);

  // What the workers' pages say now; returns it with what their ranks had done before.
  TimesLine add_up(TimesLine now);
  // At most one line per interval by `monotonic_s`; `last`: in any case.
  void write(const TimesLine& line, double monotonic_s, bool last = false);

 private:
  void thin();

  std::filesystem::path path_;
  size_t most_lines_, most_bytes_, lines_ = 0, bytes_ = 0;
  double interval_s_ = 1, next_ = 0;
  std::map<int, RankTimes> before_, last_;  // of processes that are gone; of those that run
};

}  // namespace tandem
