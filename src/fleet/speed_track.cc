#include "fleet/speed_track.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr double kMedianOfChange = 0.954;  // |difference| of two normal readings, in standard deviations of one
constexpr double kFar = 2.5;               // standard deviations
constexpr size_t kChange = 3;              // far readings in a row

}  // namespace

void SpeedTrack::add(double reading) {
  const bool aside = far(reading);
  if (last_ > 0) {
    changes_.push_back(std::abs(reading - last_) / std::max(reading, last_));
    if (changes_.size() > kWindow) changes_.pop_front();
  }
  last_ = reading;
  if (!aside) {
    aside_.clear();
    take(reading);
  } else if (aside_.size() == kChange) {
    readings_ = weight_ = value_ = 0;
    for (const double one : std::exchange(aside_, {})) take(one);
  }
}

bool SpeedTrack::far(double reading) {
  if (readings_ < kChange) return false;
  const double off = reading / value_ - 1;
  if (std::abs(off) <= kFar * scatter()) return false;
  if (!aside_.empty() && (aside_.front() < value_) != (off < 0)) aside_.clear();
  aside_.push_back(reading);
  return true;
}

void SpeedTrack::take(double reading) {
  readings_ = std::min(readings_ + 1, kLongest);
  const double share = 1 / readings_;
  if (readings_ == 1) first_ = reading;
  if (readings_ == 2) second_ = reading;
  value_ += share * (reading - value_);
  if (readings_ == 3) value_ = std::max(std::min(first_, second_), std::min(std::max(first_, second_), reading));
  weight_ = (1 - share) * (1 - share) * weight_ + share * share;
}

double SpeedTrack::uncertainty() const { return scatter() * std::sqrt(weight_); }

double SpeedTrack::scatter() const {
  if (changes_.empty()) return 0;
  std::vector<double> sorted(changes_.begin(), changes_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);  // the upper one of two
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle / kMedianOfChange;
}

}  // namespace tandem
