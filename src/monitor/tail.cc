#include "monitor/tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tandem {

std::string_view Tail::read_new() {
  text_.clear();
  began_anew_ = false;
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would hold us
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (fd >= 0) ::close(fd);
    began_anew_ = inode_ != 0;
    inode_ = 0;
    offset_ = 0;
    modified_ = 0;
    return {};
  }
  modified_ = static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
  const auto size = static_cast<uint64_t>(info.st_size);
  char before = '\n';
  const bool same = info.st_ino == inode_ && size >= offset_ &&
                    (offset_ == 0 || inside_ || size == offset_ ||
                     (::pread(fd, &before, 1, static_cast<off_t>(offset_ - 1)) == 1 && before == '\n'));
  if (!same) {
    began_anew_ = inode_ != 0;
    inode_ = info.st_ino;
    offset_ = 0;
    inside_ = false;
  }
  if (size - offset_ > most_) {
    offset_ = size - most_;
    inside_ = true;  // most likely
  }
  text_.resize(static_cast<size_t>(size - offset_));
  const ssize_t got = text_.empty() ? 0 : ::pread(fd, text_.data(), text_.size(), static_cast<off_t>(offset_));
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
  if (inside_) lines.remove_prefix(lines.find('\n') + 1);
  inside_ = false;
  return lines;
}

}  // namespace tandem
