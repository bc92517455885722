// apps/chess/play/line_reader.h -- lines from a descriptor, with a limit of their length and of the time to wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace tandem::chess {

class LineReader {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Got {
    kLine,     // line() is it, without its end
    kTooLong,  // one that was longer than allowed was passed over
    kEnd,      // nothing more will come; what stood there without an end was the last line
    kLate,     // nothing came until then
    kWoken,    // the other descriptor is readable
  };

  // Does not own the descriptor. Memory: at most `longest` and a block.
  LineReader(int fd, size_t longest) : fd_(fd), longest_(longest) {}

  // Waits for a line, at most `until`, and until `wake_fd` is readable. A signal does not end it.
  Got next(std::optional<Time> until = std::nullopt, int wake_fd = -1);
  const std::string& line() const { return line_; }

 private:
  bool take_line();
  bool read_more();

  int fd_;
  size_t longest_;
  std::string line_, buffer_;
  size_t begin_ = 0, looked_at_ = 0;  // of buffer_: what has not been taken, what holds no end of a line
  bool too_long_ = false, ended_ = false;
};

}  // namespace tandem::chess
