#include "base/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <functional>

#include "base/faulty_file_system.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

std::string text_of(const std::filesystem::path& path) {
  return std::string(read_whole_file(FileSystem::real(), path).text());
}

int error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const IoError& error) {
    return error.error_number();
  }
  return 0;
}

}  // namespace

TEST(FileSystem, NewFileIsNeverAnOldOne) {
  TempDir dir;
  FileSystem& fs = FileSystem::real();
  OpenFile file(fs, fs.open_new(dir / "a"));
  EXPECT_EQ(error_of([&] { fs.open_new(dir / "a"); }), EEXIST);
}

TEST(FileSystem, PipeInPlaceOfAFileIsRefusedAndNotWaitedFor) {
  TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { FileSystem::real().open_read(dir / "pipe"); }), EINVAL);
  EXPECT_EQ(error_of([&] { FileSystem::real().open_read(dir.path()); }), EISDIR);
}

TEST(FileSystem, TooLargeFileIsRefusedBeforeItIsRead) {
  TempDir dir;
  replace_file(FileSystem::real(), dir / "a", "0123456789");
  EXPECT_EQ(error_of([&] { read_whole_file(FileSystem::real(), dir / "a", 9); }), EFBIG);
  EXPECT_EQ(text_of(dir / "a"), "0123456789");
}

TEST(FileSystem, LockIsHeldUntilClosed) {
  TempDir dir;
  FileSystem& fs = FileSystem::real();
  OpenFile lock(fs, fs.lock_dir(dir.path()));
  EXPECT_EQ(error_of([&] { fs.lock_dir(dir.path()); }), EWOULDBLOCK);
  lock.close();
  OpenFile again(fs, fs.lock_dir(dir.path()));
  EXPECT_GE(again.handle().fd, 0);
}

TEST(FileSystem, FullDeviceIsReportedAsFull) {
  const FileHandle full{::open("/dev/full", O_WRONLY | O_CLOEXEC), "/dev/full"};
  OpenFile file(FileSystem::real(), full);
  EXPECT_EQ(error_of([&] { file.write_all(std::as_bytes(std::span("text"))); }), ENOSPC);
}

TEST(FileSystem, ReplacedFileIsTheOldOrTheNewWhicheverCallFails) {
  int calls = 1;
  for (int n = 0; n < calls; ++n) {
    for (bool persistent : {false, true}) {
      TempDir dir;
      replace_file(FileSystem::real(), dir / "a", "old");
      FaultyFileSystem faulty({.fail_at = n, .error_number = ENOSPC, .persistent = persistent});
      const int error_number = error_of([&] { replace_file(faulty, dir / "a", "new"); });
      EXPECT_EQ(error_number, ENOSPC) << "no error reported, call " << faulty.log().back();
      EXPECT_TRUE(text_of(dir / "a") == "old" || faulty.log().back() == "fsync_dir " + dir.path().filename().string());
      replace_file(FileSystem::real(), dir / "a", "newer");
      EXPECT_EQ(text_of(dir / "a"), "newer");
      EXPECT_EQ(FileSystem::real().list(dir.path()), std::vector<std::string>{"a"});
    }
    if (n == 0) {
      TempDir dir;
      FaultyFileSystem counting;
      replace_file(counting, dir / "a", "text");
      calls = counting.calls();
      EXPECT_EQ(calls, 7);  // exists, open, write, fsync, close, rename, fsync of the folder
    }
  }
}

}  // namespace tandem
