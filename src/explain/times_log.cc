#include "explain/times_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"

namespace tandem {

TimesLog::TimesLog(std::filesystem::path path, size_t most_lines, size_t most_bytes)
    : path_(std::move(path)), most_lines_(most_lines), most_bytes_(most_bytes) {
  std::ifstream file = read_plain_file(path_);
  for (std::string line; std::getline(file, line); ++lines_) bytes_ += line.size() + 1;
}

TimesLine TimesLog::add_up(TimesLine now) {
  for (RankRow& row : now.ranks) {
    RankTimes& last = last_[row.rank];
    if (row.times.steps < last.steps || row.times.step < last.step) before_[row.rank] += last;  // a new process
    last = row.times;
    RankTimes all = before_[row.rank];
    row.times = all += row.times;
  }
  return now;
}

void TimesLog::write(const TimesLine& line, double monotonic_s, bool last) {
  if (monotonic_s < next_ && !last) return;
  next_ = monotonic_s + interval_s_;
  const std::string text = to_json(line).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  int fd = -1;
  try {
    fd = open_plain_file(path_, O_WRONLY | O_APPEND, 0644);
  } catch (const Error&) {  // a line less
    return;
  }
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  bytes_ += text.size();
  if (whole && (++lines_ >= most_lines_ || bytes_ >= most_bytes_)) thin();
}

void TimesLog::thin() {
  std::ifstream file = read_plain_file(path_);
  std::string kept;
  size_t count = 0;
  for (std::string line; std::getline(file, line); ++count)
    if (count % 2 == 0) kept += line + "\n";
  bytes_ = kept.size();  // tried again later if it fails
  lines_ = (count + 1) / 2;
  try {
    write_file_atomically(path_, kept, Durability::kProcessDeath);
    interval_s_ *= 2;
  } catch (const Error&) {
  }
}

}  // namespace tandem
