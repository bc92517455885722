#include "engine/schedule.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

double cosine(double progress, double min_factor) {
  return min_factor + (1 - min_factor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace

double batch_factor(const ScheduleSettings& schedule, int64_t global_batch) {
  if (schedule.base_batch <= 0 || schedule.batch_scaling == "none") return 1;
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(schedule.base_batch);
  return schedule.batch_scaling == "linear" ? ratio : std::sqrt(ratio);
}

double schedule_factor(const ScheduleSettings& schedule, int64_t update) {
  if (update < schedule.warmup_steps)
    return static_cast<double>(update + 1) / static_cast<double>(schedule.warmup_steps);
  if (schedule.kind == "constant") return 1;
  const double since = static_cast<double>(update - schedule.warmup_steps);
  if (schedule.kind == "cosine") {
    const double length = static_cast<double>(schedule.total_steps - schedule.warmup_steps);
    return since >= length ? schedule.min_factor : cosine(since / length, schedule.min_factor);
  }
  double length = static_cast<double>(schedule.restart_steps), at = since;
  while (at >= length) {
    at -= length;
    length *= schedule.restart_factor;
  }
  return cosine(at / length, schedule.min_factor);
}

}  // namespace tandem
