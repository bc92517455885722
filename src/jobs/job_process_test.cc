#include "jobs/job_process.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "launch/run_lock.h"
#include "telemetry/metrics_line.h"

namespace tandem {
namespace {

std::string line(int64_t step, double score) {
  TextBuffer buffer;
  append_metrics_line(buffer, {.step = step, .loss = .5, .metrics = {{"score", score}, {"average_return", 2 * score}}},
                      1e9);
  return {buffer.data(), buffer.size()};
}

TEST(MetricsTail, SeesWhatWasAddedAndNothingOfAHalfLine) {
  const TempDir dir;
  MetricsTail tail(dir / "metrics.jsonl");
  JobStatus status;
  tail.look(status);
  EXPECT_EQ(status.step, 0) << "there is no file yet";
  std::ofstream file(dir / "metrics.jsonl");
  file << line(1, .1) << line(2, .2).substr(0, 20) << std::flush;
  tail.look(status);
  EXPECT_EQ(status.step, 1);
  EXPECT_DOUBLE_EQ(status.average_return, .2);
  file << line(2, .2).substr(20) << std::flush;
  tail.look(status);
  EXPECT_EQ(status.step, 2);
  EXPECT_DOUBLE_EQ(status.score, .2);
}

TEST(MetricsTail, AFileThatAResumeCutIsReadFromItsBeginning) {
  const TempDir dir;
  MetricsTail tail(dir / "metrics.jsonl");
  JobStatus status;
  std::ofstream(dir / "metrics.jsonl") << line(1, .1) << line(2, .2) << line(3, .3);
  tail.look(status);
  EXPECT_EQ(status.step, 3);
  std::ofstream(dir / "cut") << line(1, .1);
  std::filesystem::rename(dir / "cut", dir / "metrics.jsonl");
  tail.look(status);
  EXPECT_EQ(status.step, 1);
}

TEST(JobFolder, IsWaitedForWhileSomebodyWorksInItAndThenRefused) {
  const TempDir dir;
  wait_until_unused(dir.path(), 1);
  const RunLock lock(dir.path());
  EXPECT_THROW(wait_until_unused(dir.path(), 0.1), ConfigError);
}

}  // namespace
}  // namespace tandem
