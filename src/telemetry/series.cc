#include "telemetry/series.h"

#include <algorithm>
#include <cmath>

namespace tandem {

void Bucket::add(double value, double value_weight) { add(Bucket{value * value_weight, value_weight, value, value}); }

void Bucket::add(const Bucket& other) {
  if (other.empty()) return;
  least = empty() ? other.least : std::min(least, other.least);
  greatest = empty() ? other.greatest : std::max(greatest, other.greatest);
  sum += other.sum;
  weight += other.weight;
}

SeriesSet::SeriesSet(size_t most_buckets, size_t most_series)
    : most_buckets_(std::max<size_t>(most_buckets, 2)), most_series_(most_series) {}

void SeriesSet::add(std::string_view name, int64_t step, double value, double weight, size_t hint) {
  if (!std::isfinite(value) || !(weight > 0) || !std::isfinite(value * weight)) return;
  if (origin_ < 0) origin_ = std::max<int64_t>(step, 0);
  // A step before the first one (a second job that starts late, a hand-made file) counts to the first bucket.
  const uint64_t offset = step > origin_ ? static_cast<uint64_t>(step - origin_) : 0;
  while (offset / width_ >= most_buckets_) halve();
  if (hint >= series_.size() || series_[hint].name != name) {
    const auto at = std::find_if(series_.begin(), series_.end(), [&](const Series& s) { return s.name == name; });
    hint = static_cast<size_t>(at - series_.begin());
    if (at == series_.end()) {
      if (series_.size() >= most_series_) {
        left_out_ = true;
        return;
      }
      series_.push_back({std::string(name), {}});
    }
  }
  auto& buckets = series_[hint].buckets;
  const size_t index = offset / width_;
  if (buckets.size() <= index) buckets.resize(index + 1);
  buckets[index].add(value, weight);
}

void SeriesSet::halve() {
  width_ *= 2;
  for (Series& series : series_) {
    std::vector<Bucket> merged((series.buckets.size() + 1) / 2);
    for (size_t i = 0; i < series.buckets.size(); ++i) merged[i / 2].add(series.buckets[i]);
    series.buckets = std::move(merged);
  }
}

const Series* SeriesSet::find(std::string_view name) const {
  for (const Series& series : series_)
    if (series.name == name) return &series;
  return nullptr;
}

int64_t SeriesSet::step_of(size_t bucket) const {
  return origin_ + static_cast<int64_t>(bucket * width_ + (width_ - 1) / 2);
}

}  // namespace tandem
