// fleet/snapshot_pace.h -- when a snapshot is worth what it costs, and when one goes to the disk as well. Pure: no
// clock.
//
// A snapshot stops training for as long as the copy takes; without it a death repeats the work since the last one. So
// snapshots come so often that all of them together cost a small share of the time, the first one too: what it will
// cost is guessed from its size until one was measured. Where deaths come once in M seconds, an interval I is best for
// a cost C if C = I * I / 2M; the same M then says whether one more is worth it when little of the run is left, for at
// its end there is one anyway.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

constexpr double kSnapshotSeconds = 1.5;  // at least: a death of a small job costs at most about two seconds of work
constexpr double kSnapshotShare = 0.005;  // of the time, at most
constexpr double kGuessedBytesPerSecond = 1e9;  // into memory that nobody has touched yet; measured: 1.2e9 to 3.4e9
constexpr double kCheckpointSeconds = 10;       // between two on the disk, at least
constexpr double kWriterShare = 0.1;            // of the time in which the disk is written to, at most
constexpr double kWriterCoreShare = 0.01;  // of a core, which may be a worker's: sums and copies of what is written
constexpr double kTogether = 0.7;          // of its interval is over: it goes along with a snapshot made anyway

// Before one was measured.
constexpr double guessed_snapshot_seconds(uint64_t bytes) {
  return static_cast<double>(bytes) / kGuessedBytesPerSecond;
}

// Seconds between two, when one costs so much. Halved by each death since the last one: workers that die again and
// again before their first snapshot would never get past it.
constexpr double snapshot_interval(double cost_seconds, int deaths = 0) {
  return std::max(kSnapshotSeconds, cost_seconds / kSnapshotShare / static_cast<double>(1 << std::min(deaths, 20)));
}
constexpr double checkpoint_interval(double cost_seconds, double write_seconds, double write_cpu_seconds) {
  return std::max({kCheckpointSeconds, cost_seconds / kSnapshotShare, write_seconds / kWriterShare,
                   write_cpu_seconds / kWriterCoreShare});
}

// What one costs: the least of the last three, or the guess where that is less. A copy that had to wait for the cores
// or for memory once says nothing of the next.
class SnapshotCost {
 public:
  explicit SnapshotCost(double guess = 0) : guess_(guess), last_{guess, guess, guess} {}
  void took(double seconds) { last_[next_++ % 3] = seconds; }
  double seconds() const { return std::min({guess_, last_[0], last_[1], last_[2]}); }

 private:
  double guess_;
  double last_[3];
  unsigned next_ = 0;
};

// `at_risk`: seconds of work that a death would repeat; `left`: until the run's own end. Those that cost next to
// nothing (an interval of no more than `least`) are made to the end.
constexpr bool worth_it(double at_risk, double left, double interval, double least) {
  return at_risk >= interval && (interval <= least || at_risk * left >= interval * interval / 2);
}

}  // namespace tandem
