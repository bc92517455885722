// launch/worker_handle.h -- one worker as its launcher holds it, wherever it runs: on this machine
// (local_worker_handle.h) or under a supervisor elsewhere (remote_worker_handle.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/devices.h"
#include "explain/rank_times.h"
#include "launch/channel.h"
#include "launch/stall_watch.h"

namespace tandem {

// Why a worker is gone, in words for the user.
struct Death {
  std::string cause;  // "was killed (SIGKILL) by somebody, or by the kernel for lack of memory"
  int signal = 0;     // 0: it exited
  int exit_code = 0;
  bool out_of_memory = false;
  bool fenced = false;  // by us
};

// What a worker tells of itself in its page; a supervisor elsewhere sends it on.
struct WorkerState {
  uint64_t generation = 0, shards_run = 0, compute_ns = 0, beats = 0;
  int64_t step = 0;
  Stage stage = Stage::kStarting;
  int phase = -1, shard = -1;
  bool stopped = false;
  RankTimes times;
};
// "phase 'learn' of step 37 (computing shard 9)"
// Cores of each of so many workers that are started here; `ranks`: of an outer launcher, on this machine.
int cores_of_worker(int workers, int ranks = 0);

std::string position_text(const WorkerState& state, const std::vector<std::string>& phases);
// The number that a worker's page has while what is named here in a step's record is under way; `training`: how many of
// the phases are those of a step. A fused step counts as the last of them, a validation as its first set.
int phase_number(const std::string& name, const std::vector<std::string>& phases, int training);

// Its counters, as they are now or as it left them.
struct Progress {
  uint64_t generation = 0, shards_run = 0, compute_ns = 0;
  int64_t step = 0;
  int phase = -1;
};

class WorkerHandle {
 public:
  WorkerHandle(int rank, DeviceSpec device) : rank_(rank), device_(device) {}
  virtual ~WorkerHandle() = default;  // kills what still runs
  int rank() const { return rank_; }
  const DeviceSpec& device() const { return device_; }
  void drive(const DeviceSpec& device) { device_ = device; }  // from the next start() on
  std::string name() const;                                   // "rank 1 (cpu:1)"

  // ---- the process ----
  virtual void start(bool replacement) = 0;  // throws Error if it cannot be started
  virtual bool running() const = 0;          // started and not reaped
  virtual bool has_ended() const = 0;
  virtual pid_t pid() const { return -1; }  // of a process of this machine
  virtual void kill() = 0;
  // Waits for its end, if need be by killing it, and tells how it ended.
  virtual Death reap(bool fenced, bool oom_counted) = 0;
  virtual void pause(bool stop) = 0;  // Ctrl-Z and after it
  // It is reaped and will not be started again: its page and channel are given back. Nobody asks for them any more.
  virtual void release() {}
  virtual std::vector<int> poll_fds() const = 0;

  // ---- messages ----
  virtual void send(const nlohmann::json& body, const std::vector<int>& fds = {}) = 0;
  virtual std::optional<Message> receive() = 0;  // what is there

  // ---- its page ----
  virtual void revoke(uint64_t generation, int64_t cut) = 0;
  virtual void post_request(uint64_t packed) = 0;
  virtual void post_target(uint64_t generation, uint64_t nth, unsigned buffer) = 0;
  virtual std::optional<std::string> pop_record() = 0;
  virtual Progress progress() const = 0;
  virtual RankTimes times() const = 0;
  virtual WorkerFacts facts(uint64_t newest_generation) const = 0;
  // "phase 'learn' of step 37 (computing shard 9)"
  virtual std::string position(const std::vector<std::string>& phases) const = 0;
  virtual std::string last_words() const = 0;  // the last line of its log that is not ours
  virtual std::string log_name() const = 0;    // where to look further

  // ---- elsewhere ----
  // Not empty once the supervisor that holds it can't be reached any more: why.
  virtual std::string host_lost() { return ""; }
  // A signal to stop that its supervisor was sent, once.
  virtual std::optional<int> take_signal() { return std::nullopt; }

  // What it said of itself before it ended.
  std::string failed_kind, failed_why;
  bool arrived = false, leaving = false;
  bool joining = false;      // came by `tandem join` and has not worked yet
  bool device_gone = false;  // its GPU has vanished: it is not started again
  std::string log_trouble;   // why what it says is not kept
  int restarts = 0;
  double started_at = 0;

 protected:
  void use_own_words(Death& death) const;  // failed_kind and failed_why, if it said any

 private:
  int rank_;
  DeviceSpec device_;
};

}  // namespace tandem
