#include "fleet/speed_track.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem {
namespace {

constexpr double kMedianOfChange = 0.954;  // |difference| of two normal readings, in standard deviations of one
constexpr double kFar = 2.5;               // standard deviations

}  // namespace

void SpeedTrack::add(double reading) {
  const double off = known() && !changes_.empty() ? reading / value_ - 1 : 0;
  const int side = std::abs(off) <= kFar * scatter() ? 0 : off < 0 ? -1 : 1;
  const bool changed = side != 0 && side == far_side_;
  far_side_ = changed ? 0 : side;
  const double before = last_;
  if (last_ > 0) {
    changes_.push_back(std::abs(reading - last_) / std::max(reading, last_));
    if (changes_.size() > kWindow) changes_.pop_front();
  }
  last_ = reading;
  if (changed) {
    value_ = (before + reading) / 2;
    weight_ = 0.5;
    readings_ = 2;
    return;
  }
  readings_ = std::min(readings_ + 1, kLongest);
  const double share = 1 / readings_;
  value_ += share * (reading - value_);
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
