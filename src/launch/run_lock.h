// launch/run_lock.h -- one process at a time works in a run's folder.
//
// The lock lives in the kernel (flock on <run>/.lock), so it is gone with its holder, however that ended. The worker
// needs none: it cannot outlive the launcher that holds it.
#pragma once

#include <filesystem>

namespace tandem {

class RunLock {
 public:
  // How long to wait for a lock that is held: by the process that the file names, which may be about to end, or by what
  // a dead one left behind.
  struct Patience {
    double alive_seconds = 0.3, dead_seconds = 5;
  };
  // Throws ConfigError if another process holds it, with its number if it is alive, or if the run was removed
  // meanwhile. Takes away temporary files that killed processes left in the folder.
  explicit RunLock(const std::filesystem::path& run_dir) : RunLock(run_dir, Patience()) {}
  RunLock(const std::filesystem::path& run_dir, const Patience& patience);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// For whoever reads a run for long and must find it as it was: nobody trains it and nobody removes it meanwhile.
// Several may read. A folder that can't be written and has no lock is nobody's workplace: it is read without one.
class RunReadLock {
 public:
  explicit RunReadLock(const std::filesystem::path& run_dir);  // throws ConfigError if it is being trained, or is gone
  ~RunReadLock();
  RunReadLock(const RunReadLock&) = delete;
  RunReadLock& operator=(const RunReadLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace tandem
