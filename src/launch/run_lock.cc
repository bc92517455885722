#include "launch/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/errors.h"

namespace tandem {

RunLock::RunLock(const std::filesystem::path& run_dir) {
  const std::string path = (run_dir / ".lock").string();
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    const int error = errno;
    throw ConfigError(fmt::format("cannot write in the run's folder {}", run_dir.string()),
                      std::system_category().message(error),
                      "make the folder writable, or copy the run elsewhere and resume it there");
  }
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t got = pread(fd_, holder, sizeof holder - 1, 0);
    close(fd_);
    const std::string who =
        got > 0 ? fmt::format("process {}", std::string(holder, static_cast<size_t>(got))) : "another process";
    throw ConfigError(fmt::format("run {} is in use", run_dir.filename().string()),
                      fmt::format("{} works in it; two writers would spoil its checkpoints", who),
                      "wait for it to end, or stop it with Ctrl-C or `kill <process>`");
  }
  const std::string me = std::to_string(getpid());
  if (ftruncate(fd_, 0) == 0) {
    [[maybe_unused]] const auto written = pwrite(fd_, me.data(), me.size(), 0);  // only for the message above
  }
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace tandem
