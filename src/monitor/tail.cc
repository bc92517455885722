#include "monitor/tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tandem {

std::string_view Tail::read_new() {
  text_.clear();
  began_anew_ = false;
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    modified_ = 0;
    return {};
  }
  modified_ = static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (info.st_ino != inode_ || size < offset_) {
    began_anew_ = inode_ != 0;
    inode_ = info.st_ino;
    offset_ = 0;
  }
  if (size <= offset_) return {};
  bool cut = false;
  if (size - offset_ > most_) {
    offset_ = size - most_;
    cut = true;  // in the middle of a line, most likely
  }
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  text_.resize(static_cast<size_t>(size - offset_));
  const ssize_t got = ::pread(fd, text_.data(), text_.size(), static_cast<off_t>(offset_));
  ::close(fd);
  text_.resize(got > 0 ? static_cast<size_t>(got) : 0);
  const size_t last = text_.rfind('\n');
  if (last == std::string::npos) {  // no whole line yet; one longer than we look at is passed over
    text_.clear();
    return {};
  }
  text_.resize(last + 1);
  offset_ += last + 1;
  std::string_view lines = text_;
  if (cut) lines.remove_prefix(lines.find('\n') + 1);
  return lines;
}

}  // namespace tandem
