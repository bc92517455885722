// launch/checkpoint_writer.h -- when a checkpoint is due, and the thread that writes it while training goes on.
//
// It writes from a snapshot that the workers have left in the launcher's memory; they wait for the copy only. A failed
// write is reported and tried again at the next interval: the checkpoint before it is intact and the run goes on.
// "auto" chooses the interval by fleet/snapshot_pace.h: the stall costs at most half a percent of the run time and the
// writer is busy at most a tenth of it and takes a hundredth of a core, but not below 10 s.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/store.h"
#include "config/run_settings.h"
#include "fleet/snapshot_pace.h"

namespace tandem {

struct CheckpointReport {
  int64_t step = 0;
  bool saved = false;
  double stall_seconds = 0, write_seconds = 0, write_cpu_seconds = 0;
  uint64_t bytes = 0;
  std::string error;                  // why it was not saved
  std::vector<std::string> warnings;  // space running out; leftovers
  int buffer = -1;                    // the snapshot it was written from
};

class CheckpointWriter {
 public:
  static constexpr double kForEver = 1e300;
  // `bytes` of a checkpoint: what the first one will cost is guessed from them.
  CheckpointWriter(CheckpointStore& store, const CheckpointSettings& settings, uint64_t bytes = 0);
  ~CheckpointWriter();  // waits for a write in progress

  // By time: true when one is due; never while the one before is still being written. `seconds_left` of the run: with
  // "auto" no dear one is made just before the one at its end.
  bool due(double now_seconds, double seconds_left = kForEver);
  // With "auto": it will be due so soon that it had better go along with a snapshot that is made now.
  bool nearly_due(double now_seconds) const;
  // By steps: is a snapshot of this step to be written?
  bool wants(int64_t step) const { return every_steps_ > 0 && step % every_steps_ == 0; }
  bool busy() const;
  // With "auto": seconds until the first one, as far as its size tells; else 0.
  double first_after() const { return automatic_ && last_saved_step_ < 0 ? automatic_seconds() : 0; }

  // What `contents` views must stay unchanged until the report comes.
  void start(CheckpointContents contents, int buffer, double stall_seconds, double now_seconds);
  // After finish(), writes and waits.
  CheckpointReport save_now(CheckpointContents contents, double stall_seconds);
  void finish();                              // waits for a write under way, whose report is left for poll()
  std::optional<CheckpointReport> poll();     // the next finished report
  int event_fd() const { return event_fd_; }  // readable when a report has come
  int64_t last_saved_step() const { return last_saved_step_; }

 private:
  struct Job {
    CheckpointContents contents;
    int buffer;
    double stall;
  };
  void work();
  CheckpointReport write(const Job& job);
  double automatic_seconds() const;

  CheckpointStore& store_;
  bool automatic_ = false;
  double every_seconds_ = 0;
  int64_t every_steps_ = 0;
  double last_seconds_ = -1, last_write_ = 0, last_write_cpu_ = 0;
  int64_t last_saved_step_ = -1;
  SnapshotCost cost_;
  int event_fd_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;
  bool busy_ = false, stop_ = false;
  std::vector<CheckpointReport> reports_;
  std::thread thread_;
};

}  // namespace tandem
