// launch/start_gate.h -- a run that is started before its device is free: its workers load, and wait for the word.
//
// The word is the end of a pipe that the launcher inherited (TANDEM_START_FD): closed by whoever started it, or by that
// one's death. A run without such a pipe begins at once.
#pragma once

namespace tandem {

class StartGate {
 public:
  StartGate();
  ~StartGate();
  StartGate(const StartGate&) = delete;
  StartGate& operator=(const StartGate&) = delete;

  bool open();                    // has the word come?
  int fd() const { return fd_; }  // readable when it has; -1 once it is known

 private:
  void forget();

  int fd_ = -1;
};

}  // namespace tandem
