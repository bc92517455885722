// Checkpoints as a run makes them: in the background, never reported as saved when they are not.
#include "launch/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <latch>

#include "base/faulty_file_system.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

// Contents of one tensor, which the test may change while it is being written.
struct State {
  std::vector<float> weight = {1, 2, 3};
  CheckpointContents at(int64_t step) const {
    CheckpointContents contents;
    contents.step = step;
    contents.recipe = "tiny";
    contents.model = {{"weight", DType::kF32, {3}, std::as_bytes(std::span(weight))}};
    return contents;
  }
};

struct Job {
  Job(const std::string& every, FileSystem& fs, const std::filesystem::path& dir, uint64_t bytes = 0)
      : store(fs, dir, 2), writer(store, {.every = every}, bytes) {}
  CheckpointStore store;
  CheckpointWriter writer;
};

// Holds every new file back until the gate opens, so that a write is surely under way.
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

TEST(CheckpointWriter, WritesInTheBackgroundAndTellsOnceItIsDurable) {
  TempDir dir;
  GatedFileSystem gated;
  Job job("10s", gated, dir.path());
  const State state;
  EXPECT_FALSE(job.writer.due(0));
  EXPECT_TRUE(job.writer.due(10));
  job.writer.start(state.at(1), 2, 0.5, 10);
  EXPECT_FALSE(job.writer.due(100)) << "not while the one before is still being written";
  EXPECT_FALSE(job.writer.poll());
  gated.open_gate();
  pollfd wait{job.writer.event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 10000), 1);
  const auto report = job.writer.poll();
  ASSERT_TRUE(report && report->saved);
  EXPECT_EQ(report->step, 1);
  EXPECT_EQ(report->buffer, 2);
  EXPECT_EQ(job.store.load_newest()->manifest.step, 1);
}

TEST(CheckpointWriter, SaveNowWaitsForTheOneUnderWay) {
  TempDir dir;
  Job job("never", FileSystem::real(), dir.path());
  const State state;
  job.writer.start(state.at(1), 0, 0, 0);
  EXPECT_TRUE(job.writer.save_now(state.at(2), 0).saved);
  const auto first = job.writer.poll();
  ASSERT_TRUE(first && first->saved);
  EXPECT_EQ(job.store.steps(), (std::vector<int64_t>{1, 2}));
}

TEST(CheckpointWriter, EachFileCallThatFailsIsToldAndTheOneBeforeIsIntact) {
  const State state;
  int calls = 0;
  {
    TempDir dir;
    FaultyFileSystem counting;
    Job job("never", counting, dir.path());
    ASSERT_TRUE(job.writer.save_now(state.at(1), 0).saved);
    ASSERT_TRUE(job.writer.save_now(state.at(2), 0).saved);
    calls = counting.calls();
  }
  int reported = 0;
  for (int at = calls / 2; at < calls; ++at)
    for (int error : {EIO, ENOSPC}) {
      TempDir dir;
      FaultyFileSystem faulty({.fail_at = at, .error_number = error, .persistent = error == ENOSPC});
      std::optional<Job> job;
      job.emplace("never", faulty, dir.path());
      const bool first = job->writer.save_now(state.at(1), 0).saved;
      const CheckpointReport second = job->writer.save_now(state.at(2), 0);
      if (!second.saved) {
        ++reported;
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
  EXPECT_GT(reported, 10) << "the faults were met";
}

TEST(CheckpointWriter, ByStepsAndByTimeAndNever) {
  TempDir dir;
  Job steps("10 steps", FileSystem::real(), dir / "a");
  EXPECT_FALSE(steps.writer.wants(9));
  EXPECT_TRUE(steps.writer.wants(10));
  EXPECT_FALSE(steps.writer.due(0));
  EXPECT_FALSE(steps.writer.due(1e9));
  Job automatic("auto", FileSystem::real(), dir / "c");
  EXPECT_FALSE(automatic.writer.due(0));
  EXPECT_FALSE(automatic.writer.due(9));
  EXPECT_TRUE(automatic.writer.due(10));
  Job never("never", FileSystem::real(), dir / "d");
  EXPECT_FALSE(never.writer.wants(1));
  EXPECT_FALSE(never.writer.due(0));
  EXPECT_FALSE(never.writer.due(1e9));
}

TEST(CheckpointWriter, TheFirstAutomaticOneOfALargeStateComesWhenItIsWorthItsCost) {
  TempDir dir;
  Job large("auto", FileSystem::real(), dir / "a", 545'000'000);
  EXPECT_FALSE(large.writer.due(0));
  EXPECT_FALSE(large.writer.due(100));
  EXPECT_FALSE(large.writer.due(109, 20)) << "the run ends, and saves itself, in 20 s";
  EXPECT_TRUE(large.writer.due(109));
}

TEST(CheckpointWriter, AnIntervalThatTheUserNamesIsObeyedWhateverItCosts) {
  TempDir dir;
  Job large("2s", FileSystem::real(), dir / "a", 545'000'000);
  EXPECT_FALSE(large.writer.due(0));
  EXPECT_FALSE(large.writer.nearly_due(1.9)) << "not before its time, either";
  EXPECT_TRUE(large.writer.due(2));
  EXPECT_TRUE(large.writer.due(2, 0.1)) << "also just before the end";
  Job never("never", FileSystem::real(), dir / "b", 545'000'000);
  EXPECT_FALSE(never.writer.due(0));
  EXPECT_FALSE(never.writer.nearly_due(1e9));
}

TEST(CheckpointWriter, OneThatIsNearlyDueGoesAlongWithASnapshotThatIsMadeAnyway) {
  TempDir dir;
  Job job("auto", FileSystem::real(), dir.path());
  EXPECT_FALSE(job.writer.nearly_due(0)) << "the clock starts with the first question";
  EXPECT_FALSE(job.writer.due(0));
  EXPECT_FALSE(job.writer.nearly_due(5));
  EXPECT_TRUE(job.writer.nearly_due(9));
  EXPECT_FALSE(job.writer.due(9)) << "but none is made for its sake";
}

}  // namespace
}  // namespace tandem
