#include "checkpoint/best.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/faulty_file_system.h"
#include "checkpoint/sample.h"

namespace tandem {
namespace {

namespace stdfs = std::filesystem;

// Saves `step`, whose validation says that `best` is the best step so far.
void save_judged(FileSystem& fs, const stdfs::path& dir, std::int64_t step, std::int64_t best) {
  Sample sample(step);
  sample.contents().scalars["validation"] = {{"best_step", best}};
  CheckpointStore(fs, dir, 2).save(sample.contents());
}

}  // namespace

TEST(BestCheckpoint, OutlivesTheRotationAndIsWhole) {
  TempDir dir(quick_dir());
  FileSystem& fs = FileSystem::real();
  save_judged(fs, dir.path(), 100, 100);
  for (const std::int64_t step : {200, 300, 400}) save_judged(fs, dir.path(), step, 100);
  EXPECT_EQ(best_step(fs, dir.path()), 100);
  CheckpointStore store = CheckpointStore::reader(fs, dir.path());
  EXPECT_EQ(store.steps(), (std::vector<std::int64_t>{300, 400}));
  const LoadedCheckpoint best = store.load(dir / kBestFolder);
  Sample sample(100);
  sample.contents().scalars["validation"] = {{"best_step", 100}};
  EXPECT_EQ(sample.difference(best), "");
  EXPECT_EQ(store.load_newest()->manifest.step, 400);
}

TEST(BestCheckpoint, IsReplacedByABetterOne) {
  TempDir dir(quick_dir());
  save_judged(FileSystem::real(), dir.path(), 100, 100);
  save_judged(FileSystem::real(), dir.path(), 200, 200);
  EXPECT_EQ(best_step(FileSystem::real(), dir.path()), 200);
}

TEST(BestCheckpoint, IsNotMadeWithoutAValidation) {
  TempDir dir(quick_dir());
  CheckpointStore(FileSystem::real(), dir.path(), 2).save(Sample(100).contents());
  EXPECT_FALSE(best_step(FileSystem::real(), dir.path()));
  EXPECT_FALSE(stdfs::exists(dir / kBestFolder));
}

// Whatever call fails, the best one of before or the new one is there in the end, and no temporary folder is.
TEST(BestCheckpoint, SurvivesAFaultOfAnyCall) {
  int calls = 0;
  {
    TempDir dir(quick_dir());
    save_judged(FileSystem::real(), dir.path(), 100, 100);
    FaultyFileSystem counting;
    keep_best(counting, dir.path(), dir / "step-00000100");
    calls = counting.calls();
  }
  ASSERT_GT(calls, 5);
  for (int n = 0; n < calls; ++n)
    for (const bool persistent : {false, true}) {
      TempDir dir(quick_dir());
      save_judged(FileSystem::real(), dir.path(), 100, 100);
      save_judged(FileSystem::real(), dir.path(), 200, 100);
      FaultyFileSystem faulty({.fail_at = n, .error_number = EIO, .persistent = persistent});
      try {
        keep_best(faulty, dir.path(), dir / "step-00000200");
      } catch (const IoError&) {
      }
      mend_best(FileSystem::real(), dir.path());
      const auto step = best_step(FileSystem::real(), dir.path());
      ASSERT_TRUE(step == 100 || step == 200) << faulty.log().back();
      for (const std::string& name : FileSystem::real().list(dir.path()))
        EXPECT_FALSE(name.starts_with(".")) << name << " after " << faulty.log().back();
    }
}

}  // namespace tandem
