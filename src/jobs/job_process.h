// jobs/job_process.h -- the process of one job: the same program, as the launcher of that job's run.
//
// It has its own process group, so that a Ctrl-C reaches the set alone, which stops its jobs in order. When the set
// dies it gets SIGTERM: it saves and ends. What it says goes to a log; how far it is, its records tell.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/devices.h"
#include "jobs/job.h"
#include "launch/pinned_recipe.h"
#include "launch/worker_process.h"
#include "telemetry/metrics_file.h"

namespace tandem {

// The newest record of a metrics.jsonl that somebody writes, or replaces by a shorter one.
class MetricsTail {
 public:
  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}
  // At what came since the last look. True if it was replaced: the records of a checkpoint are written again.
  bool look(JobStatus& status);

 private:
  std::filesystem::path path_;
  uint64_t file_ = 0;  // its inode
  int64_t at_ = 0;
  std::unique_ptr<MetricsParser> parser_;
  JobStatus* status_ = nullptr;
};

struct JobEnd {
  int code = 0;           // exit code; 128 + the signal where it died of one
  std::string reason;     // "was killed (SIGKILL)", "exited with code 7: the loss is NaN"
  bool is_final() const;  // it would end so again
};

class JobProcess {
 public:
  // Begins the job, or goes on with it; with `wait` it loads and waits for go(). Throws Error if the program can't be
  // started.
  JobProcess(const SetJob& job, std::shared_ptr<const WorkerProgram> program, const std::vector<DeviceSpec>& devices,
             const std::vector<std::string>& unset_variables, std::filesystem::path log, bool wait = false);
  void go() { gate_.open(); }
  // Of it and all that it started; absent where that is not known.
  std::optional<uint64_t> memory_bytes() const;

  int pidfd() const { return process_.pidfd(); }
  bool ended() const { return process_.ended(); }
  void send(int signal) const { process_.send(signal); }
  void kill() const { process_.kill_group(); }
  JobEnd reap();  // waits for the end

 private:
  // A pair of sockets, one of them the process's: at the word the job begins, at its end it ends (launch/start_gate.h).
  class Gate {
   public:
    explicit Gate(bool wait);
    ~Gate() { reset(); }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    int theirs() const { return theirs_; }
    void give();  // the process has its end
    void open();
    void reset();

   private:
    int ours_ = -1, theirs_ = -1;
  };

  std::filesystem::path log_;
  int64_t log_begin_;
  std::unique_ptr<const PinnedRecipe> recipe_;  // that the job trains
  Gate gate_;
  WorkerProcess process_;
};

// How many workers have joined the run of a job since it began.
int joined_so_far(const std::filesystem::path& dir);

// Waits until nobody works in the job's folder any more: one whose set was killed a moment ago still saves. Throws
// ConfigError if that takes longer than `seconds`.
void wait_until_unused(const std::filesystem::path& dir, double seconds);

}  // namespace tandem
