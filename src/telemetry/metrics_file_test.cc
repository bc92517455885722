#include "telemetry/metrics_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "base/errors.h"
#include "base/faulty_file_system.h"
#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

StepRecord record_of(int64_t step) {
  StepRecord r;
  r.step = step, r.loss = 1.0 / static_cast<double>(step), r.seconds = 0.001, r.samples = 8;
  return r;
}

std::vector<int64_t> steps_in(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  read_metrics(path, [&](const StepRecord& r) { steps.push_back(r.step); });
  return steps;
}

void write_steps(const std::filesystem::path& path, int64_t from, int64_t to) {
  MetricsWriter writer(path);
  for (int64_t s = from; s <= to; ++s) writer.add(record_of(s));
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app) << text;
}

TEST(MetricsFile, HoldsEveryRecordInOrder) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 3000);  // several flushes of the buffer
  const auto steps = steps_in(dir / "m.jsonl");
  ASSERT_EQ(steps.size(), 3000u);
  for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(steps[static_cast<size_t>(i)], i + 1);
}

TEST(MetricsFile, AMissingFileHasNoRecords) {
  const TempDir dir;
  EXPECT_EQ(read_metrics(dir / "none", [](const StepRecord&) {}).records, 0);
}

TEST(MetricsFile, ALineTornAtAnyByteIsNotDeliveredAndHidesNoOther) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 3);
  const std::string whole = *read_small_file(dir / "m.jsonl");
  const size_t second_end = whole.find('\n', whole.find('\n') + 1) + 1;
  for (size_t size = second_end + 1; size < whole.size(); ++size) {
    std::ofstream(dir / "m.jsonl", std::ios::trunc) << whole.substr(0, size);
    int64_t seen = 0;
    const auto read = read_metrics(dir / "m.jsonl", [&](const StepRecord&) { ++seen; });
    ASSERT_EQ(seen, 2) << size;
    ASSERT_TRUE(read.torn) << size;
    ASSERT_EQ(read.bad_count, 0) << size;
  }
}

TEST(MetricsFile, BadLinesAreNamedWithNumberAndReasonAndTheRestIsRead) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 2);
  append_text(dir / "m.jsonl", "garbage\n\n{\"step\":\"x\"}\n" + std::string(2 << 20, 'y') + "\n");
  write_steps(dir / "m.jsonl", 3, 4);
  int64_t seen = 0;
  const auto read = read_metrics(dir / "m.jsonl", [&](const StepRecord&) { ++seen; });
  EXPECT_EQ(seen, 4);
  ASSERT_EQ(read.bad.size(), 3u);
  EXPECT_EQ(read.bad[0].line, 3);
  EXPECT_EQ(read.bad[1].line, 5);
  EXPECT_EQ(read.bad[1].reason, "'step' is not a whole number but a text");
  EXPECT_EQ(read.bad[2].line, 6);
  EXPECT_EQ(read.bad[2].reason, "longer than a record can be");
}

TEST(MetricsFile, PiecesOfAnySizeGiveTheSameRecords) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 20);
  append_text(dir / "m.jsonl", "bad\n");
  const std::string text = *read_small_file(dir / "m.jsonl");
  for (const size_t piece : {1u, 2u, 7u, 64u, 4096u}) {
    int64_t sum = 0;
    MetricsParser parser([&](const StepRecord& r) { sum += r.step; });
    for (size_t at = 0; at < text.size(); at += piece) parser.feed(std::string_view(text).substr(at, piece));
    const auto read = parser.finish();
    EXPECT_EQ(sum, 210) << piece;
    EXPECT_EQ(read.bad_count, 1) << piece;
    EXPECT_FALSE(read.torn) << piece;
  }
}

TEST(MetricsFile, CutDropsLaterRecordsAndATornEndAndKeepsTheRestByteForByte) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 10);
  const std::string before = *read_small_file(dir / "m.jsonl");
  append_text(dir / "m.jsonl", "a bad line stays\n");
  write_steps(dir / "m.jsonl", 11, 2000);
  append_text(dir / "m.jsonl", "{\"step\":2001,\"lo");
  EXPECT_EQ(cut_metrics(dir / "m.jsonl", 10), 1990);
  EXPECT_EQ(*read_small_file(dir / "m.jsonl"), before + "a bad line stays\n");
  EXPECT_EQ(cut_metrics(dir / "m.jsonl", 10), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "a temporary file was left";
}

TEST(MetricsFile, CutOfJobsThatInterleaveKeepsEachOnesEarlierSteps) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3, 1, 4, 2, 5, 3}) write_steps(dir / "m.jsonl", step, step);
  EXPECT_EQ(cut_metrics(dir / "m.jsonl", 2), 4);
  EXPECT_EQ(steps_in(dir / "m.jsonl"), (std::vector<int64_t>{1, 2, 1, 2}));
}

TEST(MetricsFile, ACutThatFailsAtAnyCallLeavesTheOldFileOrTheNewOne) {
  const TempDir dir;
  for (const bool persistent : {false, true})
    for (int n = 0;; ++n) {
      std::filesystem::remove(dir / "m.jsonl");
      write_steps(dir / "m.jsonl", 1, 10);
      FaultyFileSystem fs({.fail_at = n, .error_number = ENOSPC, .persistent = persistent});
      try {
        cut_metrics(dir / "m.jsonl", 6, fs);
        ASSERT_FALSE(fs.fired());
        EXPECT_GT(n, 4);
        break;
      } catch (const IoError&) {
        const size_t records = steps_in(dir / "m.jsonl").size();
        ASSERT_TRUE(records == 10 || records == 6) << fs.log().back();
        ASSERT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << fs.log().back();
      }
    }
}

TEST(MetricsFile, CutToNothingLeavesAnEmptyFile) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 10);
  EXPECT_EQ(cut_metrics(dir / "m.jsonl", 0), 10);
  EXPECT_EQ(*read_small_file(dir / "m.jsonl"), "");
  EXPECT_EQ(cut_metrics(dir / "missing", 0), 0);
}

TEST(MetricsFile, AWriterAfterATornEndStartsOnALineOfItsOwn) {
  const TempDir dir;
  write_steps(dir / "m.jsonl", 1, 2);
  append_text(dir / "m.jsonl", "{\"step\":3");
  write_steps(dir / "m.jsonl", 4, 5);
  EXPECT_EQ(steps_in(dir / "m.jsonl"), (std::vector<int64_t>{1, 2, 4, 5}));
}

// A size limit of the process stands for a full disk: write() comes back short, then fails.
TEST(MetricsFile, ADiskThatIsFullForAWhileTearsNoLine) {
  const TempDir dir;
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  bool failed = false;
  {
    MetricsWriter writer(dir / "m.jsonl");
    rlimit small = old;
    small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    for (int64_t s = 1; s <= 50; ++s) writer.add(record_of(s));
    try {
      writer.flush();
    } catch (const IoError& error) {
      failed = error.error_number() == EFBIG;
    }
    setrlimit(RLIMIT_FSIZE, &old);
    for (int64_t s = 51; s <= 60; ++s) writer.add(record_of(s));
    writer.flush();
    EXPECT_EQ(writer.dropped(), 0);
  }
  EXPECT_TRUE(failed);
  const auto read = read_metrics(dir / "m.jsonl", [](const StepRecord&) {});
  EXPECT_EQ(read.records, 60);
  EXPECT_EQ(read.bad_count, 0);
}

}  // namespace
}  // namespace tandem
