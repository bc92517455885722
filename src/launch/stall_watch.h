// launch/stall_watch.h -- which workers make no progress, by their progress counters alone.
//
// A worker that computes but makes no progress for max(15 s, 20 x the phase's median) is frozen. One that waits for
// others is not: it is blamed only where the system says that it is stopped, or where nobody is behind it. Pure: the
// clock and the facts are given, so that tests decide what time it is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fleet/worker_page.h"

namespace tandem {

struct WorkerFacts {
  int rank = 0;
  uint64_t beats = 0;
  Stage stage = Stage::kStarting;
  int phase = -1;
  bool stopped = false;              // the system says so (state T of /proc/<pid>/stat)
  bool in_newest_generation = true;  // it works in the newest generation
};

class StallWatch {
 public:
  explicit StallWatch(double floor_seconds = 15, double times_median = 20)
      : floor_seconds_(floor_seconds), times_median_(times_median) {}

  void phase_took(int phase, double seconds);
  // Everybody starts anew: in a new generation, or when this process itself was stopped.
  void reset() { seen_.clear(); }
  // The ranks that are frozen now. Workers that have not started yet have `start_seconds`.
  std::vector<int> frozen(double now, const std::vector<WorkerFacts>& workers);
  double limit_of(int phase) const;
  double quiet_seconds(int rank, double now) const;  // since it was last seen to move; 0 if it was never seen

 private:
  struct Seen {
    uint64_t beats = 0;
    Stage stage = Stage::kStarting;
    double since = 0;
  };
  double floor_seconds_, times_median_;
  std::map<int, Seen> seen_;
  std::map<int, std::vector<double>> recent_;  // by phase, the last 101
};

}  // namespace tandem
