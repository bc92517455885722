// telemetry/run_lock_state.h -- whether anybody works in a run's folder, as its lock tells (launch/run_lock.h).
#pragma once

#include <filesystem>

namespace tandem {

enum class RunLockState {
  kFree,
  kHeld,
  kUnknown,  // no lock file, no right to open it, or a file system on which a lock of another machine may not be seen
};

// Takes the lock, shared, for a moment: those who wait for it try for longer.
RunLockState run_lock_state(const std::filesystem::path& run_dir);

}  // namespace tandem
