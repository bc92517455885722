// fleet/speed_track.h -- how fast a worker is, smoothed, and how far that may be off by chance.
//
// Readings of equal workers jump about: other programs, clocks, caches. Whoever acts on a difference that is no larger
// than what chance makes of it moves shards to and fro. The scatter is taken from differences of successive readings,
// by their median, so that a worker which really becomes slower does not look like a noisy one. A reading that is far
// off is set aside: another program had the core for a moment. Three in a row on the same side are a change: what was
// before them is forgotten. The first three readings count by their median.
#pragma once

#include <cstddef>
#include <deque>

namespace tandem {

class SpeedTrack {
 public:
  void add(double reading);  // > 0
  bool known() const { return value_ > 0; }
  double value() const { return value_; }  // smoothed
  // One standard deviation of value(), as a share of it; 0 with fewer than two readings.
  double uncertainty() const;

 private:
  // The weight of a new reading: all readings since the last change count alike, until there are this many.
  static constexpr double kLongest = 20;
  static constexpr size_t kWindow = 15;  // differences remembered

  double scatter() const;     // of one reading, as a share
  bool far(double reading);   // it is set aside
  void take(double reading);  // into value_

  double value_ = 0, last_ = 0;
  double readings_ = 0;            // in value_, since the last change
  double first_ = 0, second_ = 0;  // of these
  std::deque<double> aside_;       // far off in a row, all on one side
  double weight_ = 0;              // sum of the squared weights of all readings in value_
  std::deque<double> changes_;     // from reading to reading, as shares
};

}  // namespace tandem
