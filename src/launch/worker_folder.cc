#include "launch/worker_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/errors.h"
#include "base/file_system.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "tandem-start-";
constexpr time_t kYoungSeconds = 60;  // made by somebody who has not locked it yet

fs::path temporary() {
  std::error_code none;
  const fs::path path = fs::temp_directory_path(none);
  return none ? "/tmp" : path;
}

bool is_leftover(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 && about.st_uid == geteuid() && time(nullptr) - about.st_mtime > kYoungSeconds &&
         flock(fd, LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

WorkerFolder::WorkerFolder(const std::string& recipe_toml) {
  const fs::path first = temporary();
  if (make_in(first, recipe_toml)) return;
  const int error = errno;
  if (make_in("/dev/shm", recipe_toml)) return;
  throw IoError(fmt::format("cannot write a recipe for the worker in {} or /dev/shm", first.string()), error,
                "make room there, or set TMPDIR to a folder that is yours");
}

bool WorkerFolder::make_in(const fs::path& parent, const std::string& recipe_toml) {
  std::string name = (parent / fmt::format("{}XXXXXX", kPrefix)).string();
  if (!mkdtemp(name.data())) return false;
  path_ = name;
  lock_ = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int error = lock_ >= 0 && flock(lock_, LOCK_EX) == 0 ? 0 : errno;
  if (error == 0) {
    try {
      replace_file(FileSystem::real(), path_ / "recipe.toml", recipe_toml);
      return true;
    } catch (const Error&) {
      error = ENOSPC;
    }
  }
  remove();
  errno = error;
  return false;
}

void WorkerFolder::remove() {
  std::error_code none;
  if (!path_.empty()) fs::remove_all(path_, none);
  if (lock_ >= 0) close(std::exchange(lock_, -1));
}

WorkerFolder::~WorkerFolder() { remove(); }

void WorkerFolder::sweep() {
  for (const fs::path& parent : {temporary(), fs::path("/dev/shm")}) {
    std::error_code none;
    for (fs::directory_iterator entry(parent, none), end; !none && entry != end; entry.increment(none)) {
      if (!entry->path().filename().string().starts_with(kPrefix)) continue;
      const int fd = open(entry->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0) continue;
      std::error_code ignored;
      if (is_leftover(fd)) fs::remove_all(entry->path(), ignored);
      close(fd);
    }
  }
}

}  // namespace tandem
