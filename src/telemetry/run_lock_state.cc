#include "telemetry/run_lock_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tandem {
namespace {

// File systems of one machine, on which a lock that nobody here holds is held by nobody. By the numbers of statfs(2):
// linux/magic.h lacks some. On others (NFS, Lustre, CIFS, FUSE) it depends on how they are mounted.
constexpr uint64_t kOfOneMachine[] = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // xfs
    0x9123683E,  // btrfs
    0x01021994,  // tmpfs
    0x794C7630,  // overlayfs
    0x2FC12FC1,  // zfs
    0xF2F52010,  // f2fs
    0x858458F6,  // ramfs
    0xCA451A4E,  // bcachefs
    0x52654973,  // reiserfs
    0x3153464A,  // jfs
};

}  // namespace

RunLockState run_lock_state(const std::filesystem::path& run_dir) {
  const int fd = open((run_dir / ".lock").c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return RunLockState::kUnknown;
  const bool taken = flock(fd, LOCK_SH | LOCK_NB) == 0;
  const int error = errno;
  struct statfs about {};
  const bool local =
      fstatfs(fd, &about) == 0 &&
      std::ranges::find(kOfOneMachine, static_cast<uint64_t>(about.f_type) & 0xFFFFFFFFu) != std::end(kOfOneMachine);
  close(fd);
  if (!taken) return error == EWOULDBLOCK ? RunLockState::kHeld : RunLockState::kUnknown;
  return local ? RunLockState::kFree : RunLockState::kUnknown;
}

}  // namespace tandem
