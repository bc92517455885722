// monitor/trails.h -- the last minutes of each value in memory, for the small curves of the terminal.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "monitor/sample_history.h"

namespace tandem {

class Trails {
 public:
  static constexpr size_t kPoints = 300;
  static constexpr size_t kMostSources = 128;  // then those that ended are forgotten
  void add(const MonitorSample& sample);
  void begin_with(const std::vector<HistorySeries>& series);  // what was kept from earlier
  // Oldest first, NaN where there was no value; empty if nothing is known of the source. `value` as in kGpuValues etc.
  const std::deque<float>& of(const std::string& source, size_t value) const;

 private:
  void put(const std::string& source, const std::vector<double>& values);
  std::map<std::string, std::vector<std::deque<float>>> trails_;
};

// The values that are kept of a sample, by source: one place for the history, the trails and whoever draws them.
std::vector<std::pair<std::string, std::vector<double>>> kept_values(const MonitorSample& sample);

// `width` characters for the newest points, from `low` to `high` (NaN: from the points themselves). Plain ASCII without
// `utf8`.
std::string sparkline(const std::deque<float>& points, int width, bool utf8, float low, float high);

}  // namespace tandem
