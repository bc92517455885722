// A disk that is really full, where we may mount a small one; else a limit on the size of files.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "checkpoint/sample.h"

namespace tandem {
namespace {

// 1 MB of memory as a disk, unmounted at the end.
class SmallDisk {
 public:
  SmallDisk() { mounted_ = mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=1m") == 0; }
  ~SmallDisk() {
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::filesystem::path path() const { return dir_.path(); }

 private:
  TempDir dir_;
  bool mounted_ = false;
};

constexpr std::size_t kScale = 2500;  // some 300 KB a checkpoint: two fit, a third does not beside a 300 KB file

}  // namespace

TEST(FullDisk, KeepsTheOldCheckpointsAndSavesAgainWhenThereIsRoom) {
  SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
  CheckpointStore store(FileSystem::real(), disk.path(), 2);
  const Sample first(100, "tiny-1", kScale), second(200, "tiny-1", kScale), third(300, "tiny-1", kScale);
  EXPECT_FALSE(store.space_warning(store.bytes_needed(first.contents())));
  store.save(first.contents());
  EXPECT_FALSE(store.space_warning(store.bytes_needed(first.contents())));
  store.save(second.contents());
  EXPECT_TRUE(store.space_warning(store.bytes_needed(first.contents()))) << "not warned before the disk was full";
  { std::ofstream(disk.path() / "other").write(std::string(300'000, 'x').data(), 300'000); }
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      store.save(third.contents());
      FAIL() << "saved on a full disk";
    } catch (const IoError& error) {
      EXPECT_EQ(error.error_number(), ENOSPC);
    }
    EXPECT_EQ(store.steps(), (std::vector<std::int64_t>{100, 200}));
    EXPECT_EQ(second.difference(*store.load_newest()), "");
    EXPECT_EQ(FileSystem::real().list(disk.path()).size(), 4u) << "a half-built one still takes room";
  }
  std::filesystem::remove(disk.path() / "other");
  store.save(third.contents());
  EXPECT_EQ(third.difference(*store.load_newest()), "");
}

TEST(FullDisk, FileSizeLimitIsAnErrorAndNotADeath) {
  TempDir dir;
  CheckpointStore store(FileSystem::real(), dir.path(), 2);
  const Sample first(100, "tiny-1", kScale), second(200, "tiny-1", kScale);
  store.save(first.contents());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{50'000, before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  int error_number = 0;
  try {
    store.save(second.contents());
  } catch (const IoError& error) {
    error_number = error.error_number();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(error_number, EFBIG);
  EXPECT_EQ(first.difference(*store.load_newest()), "");
  EXPECT_EQ(FileSystem::real().list(dir.path()).size(), 2u);
}

}  // namespace tandem
