// launch/supervise.h -- start the worker, pass signals on to it, and turn its end into an exit code.
//
// First Ctrl-C: passed on, the worker finishes its step, saves and ends; the second kills it and returns 130 at once.
// SIGTERM (and SIGHUP, unless ignored as under nohup): passed on as SIGTERM. SIGUSR1: passed on, save and go on. Ctrl-Z
// stops both. The worker's own exit code is the command's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launch/worker_process.h"

namespace tandem {

struct SuperviseOptions {
  std::function<void(std::string_view)> say;                 // talk for the user; may be empty
  std::function<std::optional<uint64_t>()> count_oom_kills;  // empty: the kernel's own count
  std::string log_hint;                                      // "runs/tiny-.../logs/rank-0.log"
  std::string resume_hint;                                   // "tandem resume tiny-..."
};

// Returns the exit code. Throws Error if the worker cannot be started or dies of a signal that nobody here sent.
int supervise(const WorkerCommand& command, const SuperviseOptions& options);

// How often the kernel killed for lack of memory, in this cgroup or on this machine; nothing if it does not tell.
std::optional<uint64_t> kernel_oom_kills();

}  // namespace tandem
