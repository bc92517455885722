#include "telemetry/atomic_file.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "base/faulty_file_system.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

TEST(AtomicFile, AFailureAtAnyCallLeavesTheOldTextOrTheNewAndNothingElse) {
  const TempDir dir;
  for (const auto durability : {Durability::kPowerCut, Durability::kProcessDeath})
    for (int n = 0;; ++n) {
      write_file_atomically(dir / "f", "old");
      FaultyFileSystem fs({.fail_at = n, .error_number = ENOSPC});
      try {
        write_file_atomically(dir / "f", "the new text", durability, fs);
        ASSERT_FALSE(fs.fired());
        break;
      } catch (const IoError&) {
        const bool renamed = fs.log().back().starts_with("fsync_dir");
        ASSERT_EQ(*read_small_file(dir / "f"), renamed ? "the new text" : "old") << fs.log().back();
        ASSERT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << fs.log().back();
      }
    }
  EXPECT_EQ(*read_small_file(dir / "f"), "the new text");
}

TEST(AtomicFile, AFileThatIsMissingOrTooLargeIsNotRead) {
  const TempDir dir;
  EXPECT_FALSE(read_small_file(dir / "none"));
  write_file_atomically(dir / "f", "12345");
  EXPECT_FALSE(read_small_file(dir / "f", 4));
  EXPECT_TRUE(read_small_file(dir / "f", 5));
}

}  // namespace
}  // namespace tandem
