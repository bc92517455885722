// launch/run_lock.h -- one process at a time works in a run's folder.
//
// The lock lives in the kernel (flock on <run>/.lock), so it is gone with its holder, however that ended. The worker
// needs none: it cannot outlive the launcher that holds it.
#pragma once

#include <filesystem>

namespace tandem {

class RunLock {
 public:
  // Throws ConfigError that names the process if another one holds it.
  explicit RunLock(const std::filesystem::path& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace tandem
