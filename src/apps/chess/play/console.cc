#include "apps/chess/play/console.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "apps/chess/stoppable.h"
#include "base/errors.h"
#include "base/write_whole.h"

namespace tandem::chess {
namespace {

constexpr size_t kLongestTyped = 4096;

}  // namespace

Console::Console(int in_fd, int out_fd)
    : out_fd_(out_fd), prompts_(isatty(in_fd) && isatty(out_fd)), lines_(in_fd, kLongestTyped) {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&signals_, number);  // as under nohup
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) throw IoError("cannot make a descriptor", errno, "close other programs, or raise `ulimit -n`");
}

Console::~Console() {
  close(signal_fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Console::take_signal() {
  signalfd_siginfo info = {};
  if (read(signal_fd_, &info, sizeof info) == sizeof info) signal_ = static_cast<int>(info.ssi_signo);
}

std::optional<std::string> Console::line(std::string_view prompt) {
  if (signal_ || closed_) return std::nullopt;
  if (prompts_) write(prompt);
  switch (lines_.next(std::nullopt, signal_fd_)) {
    case LineReader::Got::kLine:
      return lines_.line();
    case LineReader::Got::kTooLong:
      return std::string(kLongestTyped, '?');  // no move, and no command
    case LineReader::Got::kWoken:
      take_signal();
      break;
    case LineReader::Got::kEnd:
    case LineReader::Got::kLate:
      break;
  }
  if (prompts_) write("\n");  // the prompt's line ends
  return std::nullopt;
}

void Console::write(std::string_view text) {
  if (!closed_ && write_whole(out_fd_, text) != 0) closed_ = true;
}

void Console::do_stoppable(const std::function<void(std::stop_token)>& work) {
  const auto woken = [this] {
    take_signal();
    return signal_ != 0;
  };
  chess::do_stoppable(signal_fd_, woken, work);
}

}  // namespace tandem::chess
