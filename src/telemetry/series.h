// telemetry/series.h -- curves of any length in a bounded number of points.
//
// All curves of a run share one grid of buckets over the steps. When a step falls outside it, neighbouring buckets are
// merged and each covers twice as many steps; memory depends on the number of names, not on the length of the run. A
// bucket keeps mean, least and greatest value, so a spike of one step is still seen after a million.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct Bucket {
  double sum = 0, weight = 0, least = 0, greatest = 0;
  bool empty() const { return weight == 0; }
  double mean() const { return sum / weight; }
  void add(double value, double value_weight);
  void add(const Bucket& other);
};

struct Series {
  std::string name;
  std::vector<Bucket> buckets;  // as many as the last one used
};

class SeriesSet {
 public:
  explicit SeriesSet(size_t most_buckets = 1000, size_t most_series = 64);
  // Values that are not finite are left out, as are names past the limit. `hint`: where this name was the last time.
  void add(std::string_view name, int64_t step, double value, double weight = 1, size_t hint = 0);
  void halve();  // merges neighbours everywhere: half the points
  const std::vector<Series>& all() const { return series_; }
  const Series* find(std::string_view name) const;
  int64_t step_of(size_t bucket) const;  // the middle of what it covers
  uint64_t steps_per_bucket() const { return width_; }
  bool left_out() const { return left_out_; }

 private:
  std::vector<Series> series_;
  size_t most_buckets_, most_series_;
  int64_t origin_ = -1;
  uint64_t width_ = 1;
  bool left_out_ = false;
};

}  // namespace tandem
