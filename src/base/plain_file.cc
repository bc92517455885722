#include "base/plain_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"
#include "base/printable.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

std::string file_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISDIR(mode)) return "a folder";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

[[noreturn]] void refuse_in_place(const stdfs::path& path, const std::string& what, bool folder) {
  throw ConfigError(fmt::format("{} is {}", printable(path.string()), what),
                    fmt::format("a run's {} there is written where it stands: what leads elsewhere is not followed",
                                folder ? "folder" : "file"),
                    "look where it came from and take it away; the run makes its own");
}

}  // namespace

std::string not_a_file(const stdfs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? file_kind(info.st_mode) : "";
}

void refuse_misplaced(const stdfs::path& path, bool folder) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return;
  if (folder ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode)) return;
  refuse_in_place(path, S_ISREG(info.st_mode) ? "a file" : file_kind(info.st_mode), folder);
}

int open_plain_file(const stdfs::path& path, int flags, unsigned mode) {
  const int all = flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  int fd = -1;
  do fd = ::open(path.c_str(), all, mode);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int error = errno;
    if (error == ELOOP || error == ENXIO || error == EISDIR) refuse_misplaced(path);
    throw IoError(fmt::format("cannot open {}", path.string()), error, "check that the run folder may be written");
  }
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  refuse_in_place(path, file_kind(info.st_mode), false);
}

std::ifstream read_plain_file(const stdfs::path& path, std::ios::openmode mode) {
  std::error_code ignored;
  if (stdfs::is_regular_file(path, ignored)) return std::ifstream(path, mode | std::ios::in);
  std::ifstream none;
  none.setstate(std::ios::failbit);
  return none;
}

}  // namespace tandem
