#include "apps/chess/pgn_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/printable.h"
#include "base/write_whole.h"

namespace tandem::chess {
namespace {

constexpr int kPgnFlags = O_APPEND | O_CLOEXEC | O_NOCTTY;

int make_file(const std::filesystem::path& file) {
  return ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | kPgnFlags, 0666);
}

[[noreturn]] void refuse_pgn_file(const std::filesystem::path& file, int error) {
  const bool link = error == ELOOP;
  throw ConfigError(fmt::format("cannot write {}", file.empty() ? "\"\"" : printable(file.string())),
                    link ? "it is a link, and links are not followed" : std::generic_category().message(error),
                    link ? "name the file that it leads to" : "name a file in a folder that is there and writable");
}

bool is_no_regular_file(const std::filesystem::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// One game at a time, whoever else adds games. A file system without locks is used without.
class PgnFileLock {
 public:
  explicit PgnFileLock(int fd) : fd_(fd) {
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~PgnFileLock() { flock(fd_, LOCK_UN); }
  PgnFileLock(const PgnFileLock&) = delete;
  PgnFileLock& operator=(const PgnFileLock&) = delete;

 private:
  int fd_;
};

// What must stand between the end of a file and a game: one empty line.
std::string line_ends_after(int fd, off_t size) {
  char end[2] = {};
  if (size == 0) return "";
  if (size == 1 || pread(fd, end, 2, size - 2) != 2) return "\n\n";
  return end[1] != '\n' ? "\n\n" : end[0] != '\n' ? "\n" : "";
}

}  // namespace

PgnFile::PgnFile(std::filesystem::path file, int fd, bool made)
    : path_(std::move(file)), fd_(fd), made_(made), regular_(!is_no_regular_file(path_)) {}

PgnFile::PgnFile(std::filesystem::path file) : path_(std::move(file)), regular_(!is_no_regular_file(path_)) {
  if (regular_) {
    fd_ = make_file(path_);
    made_ = fd_ >= 0;
    if (fd_ < 0 && errno == EEXIST) fd_ = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | kPgnFlags);
  } else {
    fd_ = ::open(path_.c_str(), O_WRONLY | kPgnFlags);
  }
  if (fd_ < 0) refuse_pgn_file(path_, errno);
}

PgnFile PgnFile::make_new(const std::filesystem::path& stem) {
  constexpr int kMost = 10'000;
  for (int number = 1;; ++number) {
    const std::string file = stem.string() + (number > 1 ? fmt::format("-{}", number) : "") + ".pgn";
    const int fd = make_file(file);
    if (fd >= 0) return {file, fd, true};
    if (errno != EEXIST || number == kMost) refuse_pgn_file(file, errno);
  }
}

PgnFile::PgnFile(PgnFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), made_(other.made_), regular_(other.regular_) {}

PgnFile::~PgnFile() {
  if (fd_ < 0) return;
  struct stat ours {
  }, there{};
  if (made_ && fstat(fd_, &ours) == 0 && ours.st_size == 0 && lstat(path_.c_str(), &there) == 0 &&
      ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
    unlink(path_.c_str());
  close(fd_);
}

void PgnFile::add(std::string_view game) {
  const PgnFileLock lock(fd_);
  const off_t before = regular_ ? lseek(fd_, 0, SEEK_END) : 0;
  const int error = write_whole(fd_, (regular_ ? line_ends_after(fd_, before) : "") + std::string(game));
  if (error == 0) return;
  [[maybe_unused]] const int cut = regular_ ? ftruncate(fd_, before) : 0;
  throw IoError(fmt::format("cannot write {}", printable(path_.string())), error, "make room, or name another file");
}

}  // namespace tandem::chess
