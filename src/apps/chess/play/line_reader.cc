#include "apps/chess/play/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tandem::chess {
namespace {

constexpr size_t kBlock = 64 * 1024;

int milliseconds_until(const std::optional<LineReader::Time>& until) {
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

}  // namespace

// The next whole line, where the buffer has one; of a line that is too long only that it was there.
bool LineReader::take_line() {
  const size_t end = buffer_.find('\n', looked_at_);
  if (end == std::string::npos) {
    if (buffer_.size() - begin_ > longest_) too_long_ = true;
    if (too_long_ || begin_ == buffer_.size()) begin_ = buffer_.size();
    buffer_.erase(0, begin_);
    begin_ = 0;
    looked_at_ = buffer_.size();
    return false;
  }
  line_.assign(buffer_, begin_, end - begin_);
  too_long_ = too_long_ || line_.size() > longest_;
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  begin_ = looked_at_ = end + 1;
  return true;
}

bool LineReader::read_more() {
  const size_t size = buffer_.size();
  buffer_.resize(size + kBlock);
  ssize_t got;
  do {
    got = read(fd_, buffer_.data() + size, kBlock);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

LineReader::Got LineReader::next(std::optional<Time> until, int wake_fd) {
  while (!take_line()) {
    if (ended_) return Got::kEnd;
    pollfd fds[] = {{fd_, POLLIN, 0}, {wake_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, milliseconds_until(until));
    if (ready < 0 && errno != EINTR) ended_ = true;
    if (ready > 0 && fds[1].revents) return Got::kWoken;
    if (ready == 0 && until) return Got::kLate;
    if (ready <= 0 || !fds[0].revents || read_more()) continue;
    ended_ = true;
    if (begin_ != buffer_.size() || too_long_) buffer_ += '\n';  // the last line need not have an end
  }
  if (!too_long_) return Got::kLine;
  too_long_ = false;
  return Got::kTooLong;
}

}  // namespace tandem::chess
