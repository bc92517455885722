// explain/live.h -- names a slow-down while a run goes on: once each, when it has lasted.
//
// Every two seconds the last ten are judged as `tandem explain` would. What stands first three times in a row is
// reported, once; a new plan begins a new window, since shards that move are the remedy at work. So nothing is said of
// the first nine seconds, and nothing flaps. Heat is the guard's to name; launches are reported for GPUs alone, and
// unevenness is left to `tandem explain`.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "explain/explain.h"

namespace tandem {

class LiveWatch {
 public:
  // `speed`: of its clock; tests run it faster (TANDEM_EXPLAIN_SPEED).
  LiveWatch(std::filesystem::path run_dir, std::string run, double speed = 1);
  std::optional<SlowDown> look(const TimesLine& now, double monotonic_s);

 private:
  std::filesystem::path run_dir_;
  Evidence shape_;  // what the run's settings say
  double speed_, next_ = 0;
  std::deque<std::pair<double, TimesLine>> window_;
  std::optional<std::pair<Cause, int>> standing_;
  int times_ = 0;
  std::set<std::pair<Cause, int>> reported_;
  std::set<Cause> causes_reported_;
  bool settings_read_ = false;
};

double explain_speed();  // 1, or TANDEM_EXPLAIN_SPEED

}  // namespace tandem
