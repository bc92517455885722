#include "launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"

namespace tandem {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue() {
  signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would make the kernel reap the workers behind our back
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGTSTP}) sigaddset(&set, number);
  if (!is_ignored(SIGHUP)) sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) {
    const int error = errno;
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    throw IoError("cannot listen for signals", error, "close other programs and try again");
  }
}

SignalQueue::~SignalQueue() {
  // The run is over. A Ctrl-C that comes now, or came too late to be read, must not make it look as if it had failed.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGTSTP}) signal(number, SIG_IGN);
  while (next()) {
  }
  close(fd_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::next() const {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace tandem
