#include "launch/stall_watch.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr double kUnknownSeconds = 300;  // before a phase was ever seen to end: it may be long
constexpr double kStartSeconds = 180;
constexpr size_t kKept = 101;

bool waits(Stage stage) { return stage == Stage::kCombining || stage == Stage::kHolding || stage == Stage::kIdle; }

}  // namespace

void StallWatch::phase_took(int phase, double seconds) {
  std::vector<double>& recent = recent_[phase];
  recent.push_back(seconds);
  if (recent.size() > kKept) recent.erase(recent.begin());
}

double StallWatch::limit_of(int phase) const {
  const auto found = recent_.find(phase);
  if (found == recent_.end()) return std::max(floor_seconds_, kUnknownSeconds);
  std::vector<double> sorted = found->second;
  std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
  return std::max(floor_seconds_, times_median_ * sorted[sorted.size() / 2]);
}

double StallWatch::quiet_seconds(int rank, double now) const {
  const auto seen = seen_.find(rank);
  return seen == seen_.end() ? 0 : now - seen->second.since;
}

std::vector<int> StallWatch::frozen(double now, const std::vector<WorkerFacts>& workers) {
  std::vector<int> frozen, quiet_waiting;
  bool somebody_is_behind = false;
  for (const WorkerFacts& worker : workers) {
    Seen& seen = seen_.try_emplace(worker.rank, Seen{worker.beats, worker.stage, now}).first->second;
    if (seen.beats != worker.beats || seen.stage != worker.stage) seen = {worker.beats, worker.stage, now};
    const double quiet = now - seen.since;
    const double limit = worker.stopped                     ? std::min(limit_of(worker.phase), kUnknownSeconds)
                         : worker.stage == Stage::kStarting ? kStartSeconds
                                                            : limit_of(worker.phase);
    if (worker.stopped) {  // no median needed to call a stopped process frozen
      if (quiet >= (recent_.contains(worker.phase) ? limit : floor_seconds_)) frozen.push_back(worker.rank);
      somebody_is_behind = true;
      continue;
    }
    const bool waiting = waits(worker.stage) && (worker.stage != Stage::kHolding || worker.in_newest_generation);
    if (!waiting) somebody_is_behind = true;
    if (quiet < limit) continue;
    if (waiting)
      quiet_waiting.push_back(worker.rank);
    else
      frozen.push_back(worker.rank);
  }
  // All wait and none is behind: whoever is quiet for that long has lost its way.
  if (frozen.empty() && !somebody_is_behind && quiet_waiting.size() == workers.size() && !workers.empty() &&
      std::all_of(workers.begin(), workers.end(), [](const WorkerFacts& w) { return w.stage == Stage::kCombining; }))
    frozen.push_back(quiet_waiting.front());
  return frozen;
}

}  // namespace tandem
