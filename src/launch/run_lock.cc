#include "launch/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/errors.h"
#include "base/plain_file.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

// The process that the file names; 0 if it names none that is alive.
pid_t living_holder(int fd) {
  char text[32] = {};
  if (pread(fd, text, sizeof text - 1, 0) <= 0) return 0;
  const pid_t pid = static_cast<pid_t>(std::atol(text));
  if (pid <= 0) return 0;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  const size_t at = line.rfind(')');  // the name before it may hold anything
  const char state = at != std::string::npos && at + 2 < line.size() ? line[at + 2] : 'X';
  return state == 'X' || state == 'Z' ? 0 : pid;
}

// Nothing once the lock is ours; else who holds it, 0 if that is not known. A launcher that was killed in its start
// leaves children that have not begun: each holds the lock until its exec or its end, which come by themselves.
std::optional<pid_t> wait_for_lock(int fd, const RunLock::Patience& patience) {
  const double begin = monotonic_seconds();
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const pid_t holder = living_holder(fd);
    if (monotonic_seconds() - begin > (holder ? patience.alive_seconds : patience.dead_seconds)) return holder;
    const timespec moment{0, 5'000'000};
    nanosleep(&moment, nullptr);
  }
  return std::nullopt;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_dir, const Patience& patience) {
  try {
    fd_ = open_plain_file(run_dir / ".lock", O_RDWR, 0644);
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("cannot write in the run's folder {}", run_dir.string()), error.why(),
                      "make the folder writable, or copy the run elsewhere and resume it there");
  }
  if (const auto holder = wait_for_lock(fd_, patience)) {
    close(fd_);
    throw ConfigError(fmt::format("run {} is in use", run_dir.filename().string()),
                      fmt::format("{} works in it; two writers would spoil its checkpoints",
                                  *holder > 0 ? fmt::format("process {}", *holder) : "another process"),
                      "wait for it to end, or stop it with Ctrl-C or `kill <process>`");
  }
  const std::string me = std::to_string(getpid());
  if (ftruncate(fd_, 0) == 0) {
    [[maybe_unused]] const auto written = pwrite(fd_, me.data(), me.size(), 0);  // only for the message above
  }
  remove_abandoned_temporaries(run_dir);
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace tandem
