// forecast/pauses.h -- what a run does beside its steps: snapshots, and the checkpoints made of them. Pure.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr double kSaveBytesPerSecond = 4e8;  // of a checkpoint: hashed and written

// When checkpoints are made, as `checkpoint.every` says it.
struct CheckpointRule {
  bool automatic = true;
  double seconds = 0;  // 0: not by time
  int64_t steps = 0;   // 0: not by steps
};

struct PauseQuestion {
  CheckpointRule rule;
  double training = 0;  // seconds of all steps together
  double steps = 0;
  double snapshot = 0;    // seconds of one, while which nobody trains
  double bytes = 0;       // of a checkpoint
  double busy_cores = 0;  // share of the processor that workers keep busy: who writes takes their time
};

struct Pauses {
  double snapshots = 0, snapshot_seconds = 0;      // how many; all of them
  double checkpoints = 0, checkpoint_seconds = 0;  // what writing them takes from the workers, but for the last one
  double seconds() const { return snapshot_seconds + checkpoint_seconds; }
};
Pauses pauses_of(const PauseQuestion& question);

// For MemoryModel: as long as a run lasts, or for ever where snapshots are known to be made (asked for by a rule, which
// the length does not determine) or the length is not known.
inline double snapshot_seconds(const Pauses& pauses, double seconds) {
  return seconds <= 0 || pauses.snapshots > 0 ? 1e9 : seconds;
}

}  // namespace tandem
