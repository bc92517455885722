// launch/worker_process.h -- one worker process that cannot outlive the one who started it.
//
// The worker gets its own process group, a parent-death signal (armed before exec and re-checked), and the
// reading end of a life pipe (its number in TANDEM_LIFE_FD) that closes when the launcher is gone. Every other
// descriptor above stderr is closed on exec, but those named in `inherit`. start() must be called from the main thread:
// the parent-death signal follows the thread that forks.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/worker_program.h"

namespace tandem {

struct WorkerCommand {
  std::shared_ptr<const WorkerProgram> program;
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours, or replacing
  std::vector<std::pair<std::string, int>> inherit;              // a variable and the descriptor whose number it tells
  int death_signal = 9;       // what it gets when its launcher dies: SIGKILL; SIGTERM for one that saves first
  std::filesystem::path log;  // stdout and stderr are appended here; empty: ours. Dropped if it can't be opened.
};

class WorkerProcess {
 public:
  // Throws Error (exit 1) if the program cannot be started, or is no longer what it was.
  static WorkerProcess start(const WorkerCommand& command);

  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess(const WorkerProcess&) = delete;
  ~WorkerProcess();  // kills the whole group and reaps, if it was not reaped; a process that can't die is left

  pid_t pid() const { return pid_; }
  int log_error() const { return log_error_; }  // why what it says is dropped; 0: it is not
  int pidfd() const { return pidfd_; }          // readable once the worker has ended; -1 where the kernel has none
  void send(int signal) const;                  // to the worker alone
  void stop() const;                            // SIGSTOP; returns once it has stopped (or ended)
  void kill_group() const;                      // SIGKILL to it and to everything it started in its group
  bool ended() const;                           // does not reap
  void abandon() { pid_ = -1; }                 // it is never waited for; the parent-death signal ends it later
  int reap();                                   // waits for the end, sweeps the group; the status as waitpid gives it

 private:
  WorkerProcess() = default;
  bool ends_soon() const;
  pid_t pid_ = -1;
  int pidfd_ = -1, life_fd_ = -1, log_error_ = 0;
};

}  // namespace tandem
