// guard/gpu_log.h -- gpus.jsonl of a run: a line per second with what its GPUs did, bounded in size.
//
// Once there are kMostLines, every second one is dropped and from then on half as many are written; so the file of a
// long run has between 2,000 and 4,000 lines, equally spaced. A resume goes on with the spacing it finds. The file is
// replaced whole (by rename) when it is thinned: who follows it looks at its inode. A value that the driver does not
// report is absent. Never worth a run: a disk that is full only costs lines.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hardware/gpu.h"

namespace tandem {

// {"index": 0, "name": "...", "util": 97, "mem_used": ..., "power_w": ..., "temp_c": ..., "throttle": ["power_cap"]}
nlohmann::json reading_json(const GpuFacts& facts, const GpuReading& reading);

class GpuLog {
 public:
  static constexpr size_t kMostLines = 4000;
  explicit GpuLog(std::filesystem::path path, size_t most_lines = kMostLines);

  // At most one line per interval; `unix_s` and `time` are now, by the wall and by a clock that only grows. `others`:
  // GPUs of this machine that are not the run's, and how busy they are: [{"index": 1, "util": 0}].
  void add(double unix_s, double time, const std::vector<GpuFacts>& facts, const std::vector<GpuReading>& gpus,
           const nlohmann::json& others = {});
  double interval_s() const { return interval_s_; }

 private:
  void thin();

  std::filesystem::path path_;
  size_t most_lines_, lines_ = 0;
  double interval_s_ = 1, next_ = 0;
};

}  // namespace tandem
