#include "telemetry/run_summary.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>

#include "base/temp_dir.h"
#include "telemetry/run_lock_state.h"

namespace tandem {
namespace {

TEST(RunJson, KeepsWhatAWriterDoesNotMention) {
  const TempDir dir;
  update_run_json(dir.path(), {{"id", "tiny-1"}, {"recipe", "tiny"}});
  RunSummary summary;
  summary.status = "done", summary.step = 200, summary.loss = 0.5, summary.digest = "ab";
  write_run_status(dir.path(), summary);
  const auto run = read_run_json(dir.path());
  EXPECT_EQ(run["id"], "tiny-1");
  EXPECT_EQ(run["status"], "done");
  EXPECT_EQ(run["step"], 200);
  EXPECT_TRUE(run.contains("finished"));
}

TEST(RunJson, ALossThatIsNoNumberIsNull) { EXPECT_TRUE(to_json(RunSummary{})["loss"].is_null()); }

TEST(RunJson, ADamagedFileReadsAsEmptyAndIsReplaced) {
  const TempDir dir;
  std::ofstream(dir / "run.json") << "{\"id\":";
  EXPECT_TRUE(read_run_json(dir.path()).empty());
  update_run_json(dir.path(), {{"id", "x"}});
  EXPECT_EQ(read_run_json(dir.path())["id"], "x");
}

TEST(RunJson, ARunWhoseProcessIsGoneHasDied) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    write_run_status(dir.path(), RunSummary{});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(read_run_json(dir.path())["status"], "running");
  EXPECT_EQ(present_status(read_run_json(dir.path()), dir.path()), "died");
  write_run_status(dir.path(), RunSummary{});  // now it is us
  EXPECT_EQ(present_status(read_run_json(dir.path()), dir.path()), "running");
}

TEST(RunJson, AnotherProcessWithTheSamePidIsNotTheRun) {
  const TempDir dir;
  write_run_status(dir.path(), RunSummary{});
  auto run = read_run_json(dir.path());
  run["process"]["start"] = run["process"]["start"].get<int64_t>() - 1;
  EXPECT_EQ(present_status(run, dir.path()), "died");
}

TEST(RunJson, StatusThatIsNoTextIsUnknown) {
  EXPECT_EQ(present_status({{"status", 5}}, "nowhere"), "unknown");
  EXPECT_EQ(present_status(nlohmann::json::object(), "nowhere"), "unknown");
}

// A run of another machine that says it runs, with its lock.
class ElsewhereRun : public ::testing::Test {
 protected:
  ElsewhereRun() {
    std::ofstream(dir_ / "run.json") << run_.dump();
    lock_ = ::open((dir_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  }
  ~ElsewhereRun() override { ::close(lock_); }
  void written(int64_t seconds_ago) const {
    const timespec then{::time(nullptr) - seconds_ago, 0}, times[2] = {then, then};
    ::utimensat(AT_FDCWD, (dir_ / "run.json").c_str(), times, 0);
  }
  std::string status() const { return present_status(run_, dir_.path()); }

  const TempDir dir_;
  nlohmann::json run_ = {{"status", "running"},
                         {"process", {{"pid", 1}, {"start", 1}, {"host", "elsewhere.example"}, {"boot", "another"}}}};
  int lock_ = -1;
};

TEST_F(ElsewhereRun, RunsWhileItsLockIsHeldHoweverOldItsFilesAre) {
  ASSERT_EQ(::flock(lock_, LOCK_EX), 0);
  written(100'000);
  EXPECT_EQ(status(), "running");
}

TEST_F(ElsewhereRun, ThatWasCopiedHereHasDied) {
  written(100'000);  // as `cp -a` keeps it; on a disk of this machine a free lock would do
  EXPECT_EQ(status(), "died");
}

TEST_F(ElsewhereRun, WithoutALockRunsWhileItsFilesAreWritten) {
  std::filesystem::remove(dir_ / ".lock");
  EXPECT_EQ(status(), "running");
  written(100'000);
  EXPECT_EQ(status(), "died");
}

TEST_F(ElsewhereRun, WithoutAProcessIsToldByItsLock) {
  run_.erase("process");
  written(100'000);
  EXPECT_EQ(status(), "died");
  ASSERT_EQ(::flock(lock_, LOCK_EX), 0);
  EXPECT_EQ(status(), "running");
}

TEST_F(ElsewhereRun, ALinkInThePlaceOfTheLockIsNotFollowed) {
  std::filesystem::remove(dir_ / ".lock");
  std::ofstream(dir_ / "thesis") << "mine";
  std::filesystem::create_symlink(dir_ / "thesis", dir_ / ".lock");
  EXPECT_EQ(run_lock_state(dir_.path()), RunLockState::kUnknown);
}

TEST_F(ElsewhereRun, OfThisVerySystemUnderAnotherNameIsLookedUp) {
  write_run_status(dir_.path(), RunSummary{});
  run_ = read_run_json(dir_.path());
  run_["process"]["host"] = "renamed.example";
  EXPECT_EQ(status(), "running");
  run_["process"]["start"] = run_["process"]["start"].get<int64_t>() - 1;
  EXPECT_EQ(status(), "died");
}

TEST_F(ElsewhereRun, OfAnotherContainerIsToldByItsLock) {
  write_run_status(dir_.path(), RunSummary{});
  run_ = read_run_json(dir_.path());
  run_["process"]["pid_space"] = "pid:[1]";
  written(100'000);
  EXPECT_EQ(status(), "died");
  ASSERT_EQ(::flock(lock_, LOCK_EX), 0);
  EXPECT_EQ(status(), "running");
}

}  // namespace
}  // namespace tandem
