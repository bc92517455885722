#include "launch/start_gate.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>

namespace tandem {

StartGate::StartGate() {
  constexpr char kVariable[] = "TANDEM_START_FD";
  const char* text = std::getenv(kVariable);
  if (!text || !*text) return;
  fd_ = std::atoi(text);
  unsetenv(kVariable);  // it is no word for those whom this run starts
}

StartGate::~StartGate() { forget(); }

bool StartGate::open() {
  pollfd word{fd_, POLLIN, 0};
  if (fd_ >= 0 && poll(&word, 1, 0) > 0) {
    char byte;
    lost_ = read(fd_, &byte, 1) != 1;
    forget();
  }
  return fd_ < 0 && !lost_;
}

void StartGate::forget() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace tandem
