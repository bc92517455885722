#include "launch/supervise.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/errors.h"

namespace tandem {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Signals as a readable descriptor; the mask of before is put back at the end.
class SignalQueue {
 public:
  SignalQueue() {
    signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would make the kernel reap the worker behind our back
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGTSTP}) sigaddset(&set, number);
    if (!is_ignored(SIGHUP)) sigaddset(&set, SIGHUP);  // under nohup it stays ignored
    sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ < 0) {
      const int error = errno;
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      throw IoError("cannot listen for signals", error, "close other programs and try again");
    }
  }
  ~SignalQueue() {
    close(fd_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_; }
  std::optional<int> next() const {
    signalfd_siginfo info;
    if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_;
  int fd_ = -1;
};

class Supervisor {
 public:
  Supervisor(const WorkerCommand& command, const SuperviseOptions& options)
      : options_(options), oom_kills_before_(oom_kills()), worker_(WorkerProcess::start(command)) {}

  int run() {
    while (!worker_.ended()) {
      // SIGCHLD wakes us too, so kernels without pidfds are served by the same loop.
      pollfd waits[2] = {{signals_.fd(), POLLIN, 0}, {worker_.pidfd(), POLLIN, 0}};
      if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
      while (const auto signal = signals_.next()) {
        if (!handle(*signal)) {
          worker_.kill_group();
          worker_.reap();
          return static_cast<int>(ExitCode::kInterrupted);
        }
      }
    }
    return exit_code(worker_.reap());
  }

 private:
  // false: stop now.
  bool handle(int signal) {
    switch (signal) {
      case SIGINT:
        if (++interrupts_ > 1) return false;
        say("stopping: the step is finished and saved first; Ctrl-C again stops at once");
        worker_.send(SIGINT);
        break;
      case SIGTERM:
      case SIGHUP:
        terminated_ = true;
        say("stopping: the step is finished and saved first");
        worker_.send(SIGTERM);
        break;
      case SIGUSR1:
        worker_.send(SIGUSR1);
        break;
      case SIGTSTP:  // the worker is not in the terminal's group: Ctrl-Z reaches us alone
        worker_.stop();
        raise(SIGSTOP);
        worker_.send(SIGCONT);
        break;
      default:
        break;
    }
    return true;
  }

  int exit_code(int status) const {
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal = WTERMSIG(status);
    if (signal == SIGINT && interrupts_ > 0) return static_cast<int>(ExitCode::kInterrupted);
    if (signal == SIGTERM && terminated_) return static_cast<int>(ExitCode::kTerminated);
    const std::string todo = options_.resume_hint.empty()
                                 ? "start it again"
                                 : fmt::format("go on from the last checkpoint with `{}`", options_.resume_hint);
    if (signal == SIGKILL) throw_killed(todo);
    throw Error(
        ExitCode::kFailed, fmt::format("the worker died of signal {} ({})", signal, strsignal(signal)),
        options_.log_hint.empty()
            ? "a fault in the program, a library or the machine"
            : fmt::format("a fault in the program, a library or the machine; its last words: {}", options_.log_hint),
        todo);
  }

  [[noreturn]] void throw_killed(const std::string& todo) const {
    const auto now = oom_kills();
    if (now && oom_kills_before_ && *now > *oom_kills_before_) {
      throw Error(ExitCode::kOutOfMemory, "the kernel killed the worker: out of memory",
                  "the kernel counted an out-of-memory kill while the worker ran",
                  "use a smaller batch_size or fewer loader threads, or free memory; then " + todo);
    }
    throw Error(
        ExitCode::kFailed, "the worker was killed (SIGKILL)",
        "most likely the machine ran out of memory and the kernel chose it (see `dmesg`); else somebody ran kill -9",
        todo);
  }

  std::optional<uint64_t> oom_kills() const {
    return options_.count_oom_kills ? options_.count_oom_kills() : kernel_oom_kills();
  }

  void say(std::string_view text) const {
    if (options_.say) options_.say(text);
  }

  const SuperviseOptions& options_;
  SignalQueue signals_;  // before the worker: a Ctrl-C in between must not be lost
  std::optional<uint64_t> oom_kills_before_;
  WorkerProcess worker_;
  int interrupts_ = 0;
  bool terminated_ = false;
};

std::optional<uint64_t> count_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return std::nullopt;
}

}  // namespace

int supervise(const WorkerCommand& command, const SuperviseOptions& options) {
  return Supervisor(command, options).run();
}

std::optional<uint64_t> kernel_oom_kills() {
  // The machine's count covers every cgroup; a container that hides it still shows its own cgroup's.
  if (const auto machine = count_in("/proc/vmstat", "oom_kill")) return machine;
  return count_in("/sys/fs/cgroup/memory.events", "oom_kill");
}

}  // namespace tandem
