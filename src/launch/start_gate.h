// launch/start_gate.h -- a run that is started before its device is free: its workers load, and wait for the word.
//
// The word is a byte on a descriptor that the launcher inherited (TANDEM_START_FD). Its end without one means that
// whoever started it has died: its device is not free, and there is nothing to do. A run without it begins at once.
#pragma once

namespace tandem {

class StartGate {
 public:
  StartGate();
  ~StartGate();
  StartGate(const StartGate&) = delete;
  StartGate& operator=(const StartGate&) = delete;

  bool open();                         // has the word come?
  bool lost() const { return lost_; }  // it can't come any more
  int fd() const { return fd_; }       // readable when either is so; -1 once it is known

 private:
  void forget();

  int fd_ = -1;
  bool lost_ = false;
};

}  // namespace tandem
