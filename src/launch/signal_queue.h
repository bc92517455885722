// launch/signal_queue.h -- the signals of a launcher as a readable descriptor.
//
// At its end the mask of before is put back and further ones are ignored: the run is over, and what is left is tidying.
#pragma once

#include <signal.h>

#include <optional>

namespace tandem {

class SignalQueue {
 public:
  SignalQueue();  // SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGTSTP, and SIGHUP unless it is ignored as under nohup
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int fd() const { return fd_; }
  std::optional<int> next() const;

 private:
  sigset_t before_;
  int fd_ = -1;
};

}  // namespace tandem
