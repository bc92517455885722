#include "launch/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
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

constexpr char kLockFile[] = ".lock";

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

struct Holder {
  pid_t pid = 0;  // 0: not known
  bool reads = false;
};

// Of those that the kernel lists for this file; nobody where it lists another device number than stat tells.
std::optional<Holder> listed_holder(int fd) {
  struct stat about {};
  if (fstat(fd, &about) != 0) return std::nullopt;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    char how[8] = {};
    int pid = 0;
    unsigned device_major = 0, device_minor = 0;
    unsigned long long inode = 0;
    if (std::sscanf(line.c_str(), "%*d: FLOCK ADVISORY %7s %d %x:%x:%llu", how, &pid, &device_major, &device_minor,
                    &inode) == 5 &&
        inode == about.st_ino && device_major == major(about.st_dev) && device_minor == minor(about.st_dev))
      return Holder{pid > 0 ? pid : 0, std::string_view(how) == "READ"};
  }
  return std::nullopt;
}

Holder holder_of(int fd) {
  if (const auto listed = listed_holder(fd); listed && listed->reads) return *listed;
  return {living_holder(fd), false};
}

// Nothing once the lock is ours; else who holds it. A launcher that was killed in its start leaves children that have
// not begun: each holds the lock until its exec or its end, which come by themselves.
std::optional<Holder> wait_for_lock(int fd, int how, const RunLock::Patience& patience) {
  const double begin = monotonic_seconds();
  while (flock(fd, how | LOCK_NB) != 0) {
    const Holder holder = holder_of(fd);
    const bool alive = holder.pid > 0 || holder.reads;
    if (monotonic_seconds() - begin > (alive ? patience.alive_seconds : patience.dead_seconds)) return holder;
    const timespec moment{0, 5'000'000};
    nanosleep(&moment, nullptr);
  }
  return std::nullopt;
}

[[noreturn]] void in_use(const std::filesystem::path& run_dir, const Holder& holder, const char* otherwise) {
  const std::string who = holder.pid > 0 ? fmt::format("process {}", holder.pid) : "another process";
  throw ConfigError(fmt::format("run {} is in use", run_dir.filename().string()),
                    holder.reads ? fmt::format("{} goes on from it (`train --from`) and must find it as it was", who)
                                 : fmt::format("{} works in it; {}", who, otherwise),
                    fmt::format("wait for it to end, or stop it with Ctrl-C or `kill {}`",
                                holder.pid > 0 ? std::to_string(holder.pid) : "<process>"));
}

// The lock of a folder that was moved away or removed while we waited for it guards nothing.
void check_still_there(int fd, const std::filesystem::path& run_dir) {
  struct stat ours {
  }, named{};
  if (fstat(fd, &ours) == 0 && stat((run_dir / kLockFile).c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
      ours.st_dev == named.st_dev)
    return;
  throw ConfigError(fmt::format("run {} is gone", run_dir.filename().string()),
                    "it was removed or moved while this command waited for it",
                    "see `tandem runs list` for the runs there are");
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_dir, const Patience& patience) {
  try {
    fd_ = open_plain_file(run_dir / kLockFile, O_RDWR, 0644);
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("cannot write in the run's folder {}", run_dir.string()), error.why(),
                      "make the folder writable, or copy the run elsewhere and resume it there");
  }
  try {
    if (const auto holder = wait_for_lock(fd_, LOCK_EX, patience))
      in_use(run_dir, *holder, "two writers would spoil its checkpoints");
    check_still_there(fd_, run_dir);
  } catch (const Error&) {
    close(fd_);
    throw;
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

RunReadLock::RunReadLock(const std::filesystem::path& run_dir) {
  const std::filesystem::path file = run_dir / kLockFile;
  try {
    fd_ = open_plain_file(file, O_RDWR, 0644);
  } catch (const IoError& error) {
    fd_ = open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    std::error_code none;
    if (fd_ < 0 && std::filesystem::is_directory(run_dir, none)) return;
    if (fd_ < 0)
      throw ConfigError(fmt::format("cannot read the run {}", run_dir.string()), error.why(),
                        "see `tandem runs list` for the runs there are");
  }
  try {
    if (const auto holder = wait_for_lock(fd_, LOCK_SH, {}))
      in_use(run_dir, *holder, "what is still being trained changes");
    check_still_there(fd_, run_dir);
  } catch (const Error&) {
    close(fd_);
    throw;
  }
}

RunReadLock::~RunReadLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace tandem
