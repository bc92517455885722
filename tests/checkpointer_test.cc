// Checkpoints as a run makes them: in the background, never told saved when they are not.
#include "engine/checkpointer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <latch>

#include "base/clock.h"
#include "base/faulty_file_system.h"
#include "base/temp_dir.h"
#include "engine/determinism.h"
#include "recipes/makers.h"
#include "recipes/tiny_settings.h"

namespace tandem {
namespace {

struct Small : TinySettings {
  Small() {
    samples = 60;
    hidden = 4;
    features = 4;
    batch_size = 48;
    loader.threads = 0;
  }
};

struct Job {
  explicit Job(const CheckpointSettings& checkpoint, FileSystem& fs, const std::filesystem::path& dir)
      : loop((set_determinism(), settings), make_tiny(settings), ShardPlan::balance(24, std::vector<double>{1})),
        store(fs, dir, 2),
        checkpointer(store, checkpoint, [](CheckpointContents& c) { c.recipe = "tiny"; }) {}
  Small settings;
  TrainLoop loop;
  CheckpointStore store;
  Checkpointer checkpointer;
};

// Holds every new file back until the gate opens, so that training surely goes on while a write is under way.
class GatedFileSystem : public FileSystem {
 public:
  FileHandle open_new(const std::filesystem::path& path) override {
    gate_.wait();
    return FileSystem::open_new(path);
  }
  void open_gate() { gate_.count_down(); }

 private:
  std::latch gate_{1};
};

TEST(Checkpointer, ABackgroundWriteHoldsTheStateOfItsStepThoughTrainingWentOn) {
  TempDir dir;
  GatedFileSystem gated;
  Job job({.every = "1 steps"}, gated, dir.path());
  job.loop.step();
  const std::string digest = digest_of(job.loop);
  ASSERT_TRUE(job.checkpointer.due(1, 0));
  job.checkpointer.start(job.loop, 0);
  for (int i = 0; i < 5; ++i) job.loop.step();
  EXPECT_FALSE(job.checkpointer.due(6, 0)) << "not while the one before is still being written";
  gated.open_gate();
  EXPECT_NE(digest_of(job.loop), digest);
  const CheckpointReport last = job.checkpointer.save_now(job.loop, 0);
  EXPECT_TRUE(last.saved);
  const auto first = job.checkpointer.poll();
  ASSERT_TRUE(first && first->saved);
  EXPECT_EQ(first->step, 1);

  Job again({.every = "never"}, FileSystem::real(), dir / "other");
  restore_snapshot(again.loop, job.store.load(dir / "step-00000001"));
  EXPECT_EQ(digest_of(again.loop), digest);
}

TEST(Checkpointer, EachFileCallThatFailsIsToldAndTheOneBeforeIsIntact) {
  TempDir count_dir;
  int calls = 0;
  {
    FaultyFileSystem counting;
    Job job({.every = "never"}, counting, count_dir.path());
    job.loop.step();
    ASSERT_TRUE(job.checkpointer.save_now(job.loop, 0).saved);
    job.loop.step();
    ASSERT_TRUE(job.checkpointer.save_now(job.loop, 0).saved);
    calls = counting.calls();
  }
  int told = 0;
  for (int at = calls / 2; at < calls; ++at)
    for (int error : {EIO, ENOSPC}) {
      TempDir dir;
      FaultyFileSystem faulty({.fail_at = at, .error_number = error, .persistent = error == ENOSPC});
      std::optional<Job> job;
      job.emplace(CheckpointSettings{.every = "never"}, faulty, dir.path());
      job->loop.step();
      const bool first = job->checkpointer.save_now(job->loop, 0).saved;
      job->loop.step();
      const CheckpointReport second = job->checkpointer.save_now(job->loop, 0);
      if (!second.saved) {
        ++told;
        EXPECT_FALSE(second.error.empty());
      }
      job.reset();
      CheckpointStore store = CheckpointStore::reader(FileSystem::real(), dir.path());
      const auto loaded = store.load_newest();
      if (second.saved || first) {
        ASSERT_TRUE(loaded) << "call " << at;
        EXPECT_GE(loaded->manifest.step, second.saved ? 2 : 1) << "said saved, and it is not there: call " << at;
      }
    }
  EXPECT_GT(told, 10) << "the faults were met";
}

TEST(Checkpointer, ByStepsAndByTimeAndNever) {
  TempDir dir;
  Job steps({.every = "10 steps"}, FileSystem::real(), dir / "a");
  EXPECT_FALSE(steps.checkpointer.due(1, 0));
  EXPECT_FALSE(steps.checkpointer.due(9, 1000));
  EXPECT_TRUE(steps.checkpointer.due(10, 1000));
  Job time({.every = "60s"}, FileSystem::real(), dir / "b");
  EXPECT_FALSE(time.checkpointer.due(1, 5));
  EXPECT_FALSE(time.checkpointer.due(1000, 64));
  EXPECT_TRUE(time.checkpointer.due(1001, 65));
  Job automatic({.every = "auto"}, FileSystem::real(), dir / "c");
  EXPECT_FALSE(automatic.checkpointer.due(1, 0));
  EXPECT_FALSE(automatic.checkpointer.due(2, 9));
  EXPECT_TRUE(automatic.checkpointer.due(3, 10));
  Job never({.every = "never"}, FileSystem::real(), dir / "d");
  EXPECT_FALSE(never.checkpointer.due(1, 0));
  EXPECT_FALSE(never.checkpointer.due(100000, 1e9));
}

}  // namespace
}  // namespace tandem
