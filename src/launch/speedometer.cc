#include "launch/speedometer.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kSteps = 4;
constexpr double kSeconds = 0.1;

}  // namespace

std::optional<Speedometer::Reading> Speedometer::read(double now, int64_t step, int phases,
                                                      const std::map<int, Progress>& workers) {
  if (step < step_) step_ = step;
  if (workers.size() < 2 || step < step_ + kSteps || now - at_ < kSeconds) return std::nullopt;
  Reading reading{.step_seconds = (now - at_) / static_cast<double>(step - step_)};
  for (const auto& [rank, here] : workers) {
    const auto before = before_.find(rank);
    if (before != before_.end() && here.shards_run > before->second.shards_run &&
        here.compute_ns > before->second.compute_ns) {
      const double shards = static_cast<double>(here.shards_run - before->second.shards_run);
      const double seconds = static_cast<double>(here.compute_ns - before->second.compute_ns) * 1e-9;
      reading.speeds[rank] = shards / seconds / std::max(1, phases);  // a shard is counted once per phase
    }
    before_[rank] = here;
  }
  step_ = step;
  at_ = now;
  if (reading.speeds.size() != workers.size()) return std::nullopt;
  return reading;
}

}  // namespace tandem
