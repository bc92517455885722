#include "telemetry/run_summary.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/temp_dir.h"

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
  EXPECT_EQ(present_status(read_run_json(dir.path())), "died");
  write_run_status(dir.path(), RunSummary{});  // now it is us
  EXPECT_EQ(present_status(read_run_json(dir.path())), "running");
}

TEST(RunJson, AnotherProcessWithTheSamePidIsNotTheRun) {
  const TempDir dir;
  write_run_status(dir.path(), RunSummary{});
  auto run = read_run_json(dir.path());
  run["process"]["start"] = run["process"]["start"].get<int64_t>() - 1;
  EXPECT_EQ(present_status(run), "died");
}

TEST(RunJson, StatusOfAnotherMachineIsBelieved) {
  const nlohmann::json run = {{"status", "running"},
                              {"process", {{"pid", 1}, {"start", 1}, {"host", "elsewhere.example"}, {"boot", ""}}}};
  EXPECT_EQ(present_status(run), "running");
  EXPECT_EQ(present_status({{"status", 5}}), "unknown");
  EXPECT_EQ(present_status(nlohmann::json::object()), "unknown");
}

}  // namespace
}  // namespace tandem
