#include "apps/chess/pgn_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
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
  const std::string what = fmt::format("cannot write {}", file.empty() ? "\"\"" : printable(file.string()));
  if (error == ELOOP)
    throw ConfigError(what, "it is a link, and links are not followed", "name the file that it leads to");
  if (error == ENXIO)
    throw ConfigError(what, "it is a pipe or a socket, and nobody reads it", "start its reader first");
  throw ConfigError(what, std::generic_category().message(error), "name a file in a folder that is there and writable");
}

bool is_no_regular_file(const std::filesystem::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

bool is_regular(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool is_taken_away(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_nlink == 0;
}

// What a path led to may have been exchanged since somebody looked: a link to a regular file is not followed even then.
int open_device(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_NONBLOCK | kPgnFlags);  // a pipe without a reader is not waited for
  if (fd < 0) return fd;
  if (is_regular(fd)) {
    close(fd);
    errno = ELOOP;
    return -1;
  }
  fcntl(fd, F_SETFL, O_APPEND);
  return fd;
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
    : path_(std::move(file)), fd_(fd), made_(made), regular_(true) {}

PgnFile::PgnFile(std::filesystem::path file) : path_(std::move(file)) {
  if (!open()) refuse_pgn_file(path_, errno);
}

bool PgnFile::open() {
  made_ = false;
  if (is_no_regular_file(path_)) {
    fd_ = open_device(path_);
  } else {
    do {  // again where somebody made it before us, and took it away before it was opened
      fd_ = make_file(path_);
      made_ = fd_ >= 0;
      if (made_ || errno != EEXIST) break;
      fd_ = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | kPgnFlags);
    } while (fd_ < 0 && errno == ENOENT);
  }
  regular_ = fd_ >= 0 && is_regular(fd_);
  return fd_ >= 0;
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
  std::optional<PgnFileLock> lock;
  if (made_) lock.emplace(fd_);  // nobody adds a game between the look and the end
  struct stat ours {
  }, there{};
  if (made_ && fstat(fd_, &ours) == 0 && ours.st_size == 0 && lstat(path_.c_str(), &there) == 0 &&
      ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
    unlink(path_.c_str());
  lock.reset();
  close(fd_);
}

void PgnFile::add(std::string_view game) {
  std::optional<PgnFileLock> lock(fd_);
  while (regular_ && is_taken_away(fd_)) {  // by whoever had made it and had no game for it
    lock.reset();
    close(fd_);
    if (!open()) throw IoError(fmt::format("cannot write {}", printable(path_.string())), errno, "name another file");
    lock.emplace(fd_);
  }
  const off_t before = regular_ ? lseek(fd_, 0, SEEK_END) : 0;
  const int error = write_whole(fd_, (regular_ ? line_ends_after(fd_, before) : "") + std::string(game));
  if (error == 0) return;
  [[maybe_unused]] const int cut = regular_ ? ftruncate(fd_, before) : 0;
  throw IoError(fmt::format("cannot write {}", printable(path_.string())), error, "make room, or name another file");
}

}  // namespace tandem::chess
