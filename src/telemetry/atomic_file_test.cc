#include "telemetry/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

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

TEST(AtomicFile, WhatKilledWritersLeftGoesAndWhatLivingOnesWriteStays) {
  const TempDir dir;
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  const std::string gone = std::to_string(dead), parent = std::to_string(getppid());
  const std::vector<std::string> abandoned = {".tmp-run.json-" + gone + "-0", ".tmp-live.json-" + gone + "-12",
                                              "metrics.jsonl.tmp-" + gone};
  const std::vector<std::string> kept = {"run.json", ".tmp-live.json-" + parent + "-3", "metrics.jsonl.tmp-" + parent,
                                         ".tmp-agents.json", "notes.tmp-" + gone};
  for (const auto& names : {abandoned, kept})
    for (const std::string& name : names) std::ofstream(dir / name) << "x";
  std::filesystem::create_directory(dir / (".tmp-folder-" + gone + "-0"));
  remove_abandoned_temporaries(dir.path());
  for (const std::string& name : abandoned) EXPECT_FALSE(std::filesystem::exists(dir / name)) << name;
  for (const std::string& name : kept) EXPECT_TRUE(std::filesystem::exists(dir / name)) << name;
  EXPECT_TRUE(std::filesystem::exists(dir / (".tmp-folder-" + gone + "-0")));
}

TEST(AtomicFile, ATemporaryFileThatNamesNoProcessGoesWhenItIsOld) {
  const TempDir dir;
  std::ofstream(dir / ".tmp-agents.json") << "x";
  std::filesystem::last_write_time(dir / ".tmp-agents.json",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  remove_abandoned_temporaries(dir.path());
  EXPECT_FALSE(std::filesystem::exists(dir / ".tmp-agents.json"));
}

}  // namespace
}  // namespace tandem
