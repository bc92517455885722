#include "forecast/pauses.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// launch/launcher.cc and launch/checkpoint_writer.cc: how often each of them is made.
constexpr double kSnapshotSeconds = 1.5, kSnapshotShare = .005;
constexpr double kAutomaticSeconds = 10, kOfStall = 200, kOfWrite = 10;
// A writer beside workers that have every core gets its turns, and waits for the disk for a part of the time.
constexpr double kTakenFromWorkers = .5;
constexpr double kLeastWrite = .05;  // until the disk has it

double whole(double number) { return std::floor(std::max(0.0, number)); }

}  // namespace

Pauses pauses_of(const PauseQuestion& q) {
  Pauses told;
  if (q.training <= 0) return told;
  const double write = std::max(kLeastWrite, q.bytes / kSaveBytesPerSecond);
  if (q.rule.automatic)
    told.checkpoints = whole(q.training / std::max({kAutomaticSeconds, kOfStall * q.snapshot, kOfWrite * write}));
  else if (q.rule.steps > 0)
    told.checkpoints = whole((q.steps - 1) / static_cast<double>(q.rule.steps));  // the last step's is the end's
  else if (q.rule.seconds > 0)
    told.checkpoints = whole(q.training / q.rule.seconds);
  const double interval = std::max(kSnapshotSeconds, q.snapshot / kSnapshotShare);
  told.snapshots = q.training > kSnapshotSeconds ? 1 + whole((q.training - kSnapshotSeconds) / interval) : 0;
  if (q.rule.steps > 0) told.snapshots = std::max(told.snapshots, told.checkpoints);
  told.snapshot_seconds = told.snapshots * q.snapshot;
  told.checkpoint_seconds = told.checkpoints * write * kTakenFromWorkers * std::clamp(q.busy_cores, 0.0, 1.0);
  // By steps all are kept: whoever asks for more than the disk can take waits for it.
  if (q.rule.steps > 0)
    told.checkpoint_seconds = std::max(told.checkpoint_seconds, told.checkpoints * write - q.training);
  return told;
}

}  // namespace tandem
