#include "forecast/pauses.h"

#include <algorithm>
#include <cmath>

#include "fleet/snapshot_pace.h"

namespace tandem {
namespace {

// A writer beside workers that have every core gets its turns, and waits for the disk for a part of the time.
constexpr double kTakenFromWorkers = .5;
constexpr double kLeastWrite = .05;            // until the disk has it
constexpr double kWriterBytesPerSecond = 1e9;  // of the writer's own processor time

double whole(double number) { return std::floor(std::max(0.0, number)); }

}  // namespace

Pauses pauses_of(const PauseQuestion& q) {
  Pauses forecast;
  if (q.training <= 0) return forecast;
  const double write = std::max(kLeastWrite, q.bytes / kSaveBytesPerSecond);
  if (q.rule.automatic)
    forecast.checkpoints = whole(q.training / checkpoint_interval(q.snapshot, write, q.bytes / kWriterBytesPerSecond));
  else if (q.rule.steps > 0)
    forecast.checkpoints = whole((q.steps - 1) / static_cast<double>(q.rule.steps));  // the last step's is the end's
  else if (q.rule.seconds > 0)
    forecast.checkpoints = whole(q.training / std::max(q.rule.seconds, write));  // never two at once
  const double first = snapshot_interval(guessed_snapshot_seconds(static_cast<uint64_t>(q.bytes)));
  const double interval = snapshot_interval(q.snapshot);
  const double left =
      interval <= kSnapshotSeconds ? 0 : interval / 2;  // as worth_it(): a dear one is left out at the end
  if (q.training - left > first) forecast.snapshots = 1 + whole((q.training - left - first) / interval);
  if (!q.rule.automatic) forecast.snapshots = std::max(forecast.snapshots, forecast.checkpoints);
  forecast.snapshot_seconds = forecast.snapshots * q.snapshot;
  forecast.checkpoint_seconds = forecast.checkpoints * write * kTakenFromWorkers * std::clamp(q.busy_cores, 0.0, 1.0);
  // By steps all are kept: whoever asks for more than the disk can take waits for it.
  if (q.rule.steps > 0)
    forecast.checkpoint_seconds = std::max(forecast.checkpoint_seconds, forecast.checkpoints * write - q.training);
  return forecast;
}

}  // namespace tandem
