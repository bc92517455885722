// engine/checkpointer.h -- when to checkpoint, and the thread that writes while training goes on.
//
// The loop pays for the copy only (the stall); a thread writes, fsyncs and commits. A failed write is told and tried
// again at the next interval: the checkpoint before it is intact and the run goes on. "auto" chooses the interval so
// that the stall costs at most half a percent of the run time and the writer is busy at most a tenth of it, but not
// below 10 s.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/store.h"
#include "config/run_settings.h"
#include "engine/snapshot.h"

namespace tandem {

struct CheckpointReport {
  int64_t step = 0;
  bool saved = false;
  double stall_seconds = 0, write_seconds = 0;
  uint64_t bytes = 0;
  std::string error;                  // why it was not saved
  std::vector<std::string> warnings;  // space running out; leftovers
};

class Checkpointer {
 public:
  using Fill = std::function<void(CheckpointContents&)>;  // who the run is
  Checkpointer(CheckpointStore& store, const CheckpointSettings& settings, Fill fill);
  ~Checkpointer();  // waits for a write in progress

  // True when one is due; never while the one before is still being written.
  bool due(int64_t step, double now_seconds);
  void start(TrainLoop& loop, double now_seconds);  // copies, then writes in the background
  // Copies, writes, waits. Reports of a background write that was under way come first.
  CheckpointReport save_now(TrainLoop& loop, double now_seconds);
  std::optional<CheckpointReport> poll();                      // the next finished report
  double stalled_seconds() const { return stalled_seconds_; }  // by start(); save_now() reports its own
  int64_t last_saved_step() const { return last_saved_step_; }

 private:
  void work();
  Snapshot copy(TrainLoop& loop);
  CheckpointReport write(const Snapshot& snapshot, double stall);
  void wait_idle(std::unique_lock<std::mutex>& lock);

  CheckpointStore& store_;
  bool automatic_ = false;
  double every_seconds_ = 0;
  int64_t every_steps_ = 0;
  Fill fill_;
  double last_seconds_ = -1, stalled_seconds_ = 0, last_stall_ = 0, last_write_ = 0;
  int64_t last_step_ = 0, last_saved_step_ = -1;
  std::vector<at::Tensor> reuse_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> job_;
  double job_stall_ = 0;
  bool busy_ = false, stop_ = false;
  std::vector<CheckpointReport> reports_;
  std::thread thread_;
};

}  // namespace tandem
