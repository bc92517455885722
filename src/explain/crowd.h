// explain/crowd.h -- who else uses the cores of this machine, from /proc. Kept in ranks.jsonl, for crowded runs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "explain/rank_times.h"

namespace tandem {

// Core-seconds since the boot in which the cores that this process may use had nothing to do.
std::optional<double> idle_core_seconds();

// Programs that are neither this process (with the set of runs it belongs to) nor its descendants, by the cores they
// took between two looks.
class OtherPrograms {
 public:
  std::vector<OtherProgram> look(double monotonic_s);  // the most three, from a tenth of a core on; at first none

 private:
  std::map<int64_t, double> seconds_;  // by process
  double at_ = 0;
};

// Adds what is known of the machine to a line. Looking at all processes takes milliseconds, so that is done only while
// the workers wait for cores, at most every five seconds.
class CrowdWatch {
 public:
  void add_to(TimesLine& line, double monotonic_s);

 private:
  OtherPrograms programs_;
  std::vector<OtherProgram> seen_;
  double at_ = 0, delay_ = 0, next_look_ = 0;
  bool looked_ = false;
};

}  // namespace tandem
