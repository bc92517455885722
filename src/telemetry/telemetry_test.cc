#include "telemetry/telemetry.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"
#include "telemetry/event_log.h"
#include "telemetry/metrics_file.h"

namespace tandem {
namespace {

StepRecord telemetry_record(int64_t step) {
  StepRecord r;
  r.step = step, r.loss = 1.0 / static_cast<double>(step), r.seconds = 0.01, r.samples = 24, r.learning_rate = 1e-3,
  r.grad_norm = 0.7;
  r.metrics = {{"accuracy", 0.9}};
  r.phase_seconds = {{"learn", 0.008}, {"combine", 0.001}};
  return r;
}

// A run folder with a clock and a screen of the test's own.
struct Bench {
  Bench() { setenv("TERM", "xterm", 1); }  // whoever runs the tests may have TERM=dumb, which forbids the bar
  TempDir dir;
  double now = 1000;
  std::string screen;
  TelemetryOptions options() {
    TelemetryOptions o;
    o.run_dir = dir.path();
    o.title = "tiny";
    o.total_steps = 1000;
    o.monotonic_seconds = [this] { return now; };
    o.unix_seconds = [this] { return 1794707226.0 + now; };
    o.terminal = [this](std::string_view text) { screen += text; };
    o.terminal_width = [] { return 120; };
    return o;
  }
  std::string text(const char* name) { return read_small_file(dir / name).value_or(""); }
  int64_t records() {
    return read_metrics(dir / "metrics.jsonl", [](const StepRecord&) {}).records;
  }
};

TEST(Telemetry, ARunLeavesEveryFileOfItsFolder) {
  Bench bench;
  {
    Telemetry telemetry(bench.options());
    telemetry.say("24 shards x 4 = batch 96");
    for (int64_t s = 1; s <= 1000; ++s) bench.now += 0.01, telemetry.record(telemetry_record(s));
    telemetry.checkpoint_saved(1000, 0.002, 12345678);
    RunSummary summary;
    summary.status = "done", summary.step = 1000, summary.seconds = 10, summary.loss = 0.001,
    summary.digest = "77b04a12";
    telemetry.finish(summary);
  }
  EXPECT_EQ(bench.records(), 1000);
  EXPECT_EQ(nlohmann::json::parse(bench.text("training_stats.json")).size(), 100u);
  EXPECT_EQ(nlohmann::json::parse(bench.text("run.json"))["status"], "done");
  EXPECT_NE(bench.text("report.html").find("77b04a12"), std::string::npos);
  const std::string log = bench.text("logs/rank-0.log");
  EXPECT_NE(log.find("info  24 shards x 4 = batch 96\n"), log.npos);
  EXPECT_NE(log.find("checkpoint of step 1000 saved: 12.3 MB, steps waited 2.0 ms"), log.npos);
  EXPECT_NE(bench.screen.find("done at step 1000"), std::string::npos);
  ASSERT_EQ(read_events(bench.dir / "events.jsonl").size(), 2u);
}

TEST(Telemetry, RecordsReachTheFileWithinASecondAndAtEachCheckpoint) {
  Bench bench;
  Telemetry telemetry(bench.options());
  telemetry.record(telemetry_record(1));
  EXPECT_EQ(bench.records(), 0) << "buffered";
  bench.now += 1;
  telemetry.record(telemetry_record(2));
  EXPECT_EQ(bench.records(), 2);
  telemetry.record(telemetry_record(3));
  telemetry.checkpoint_saved(3, 0, 1);
  EXPECT_EQ(bench.records(), 3);
}

TEST(Telemetry, AResumeCutsWhatCameLaterAndGoesOn) {
  Bench bench;
  {
    Telemetry first(bench.options());
    for (int64_t s = 1; s <= 50; ++s) first.record(telemetry_record(s));
  }
  auto options = bench.options();
  options.resume_step = 30;
  {
    Telemetry second(options);
    for (int64_t s = 31; s <= 40; ++s) second.record(telemetry_record(s));
  }
  std::vector<int64_t> steps;
  read_metrics(bench.dir / "metrics.jsonl", [&](const StepRecord& r) { steps.push_back(r.step); });
  ASSERT_EQ(steps.size(), 40u);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i + 1));
  const auto stats = nlohmann::json::parse(bench.text("training_stats.json"));
  ASSERT_EQ(stats.size(), 4u);
  for (const auto& entry : stats) EXPECT_EQ(entry["steps"], 10);
  EXPECT_EQ(read_events(bench.dir / "events.jsonl").at(0).kind, "resume");
}

TEST(Telemetry, ReturnAndScoreAreInTheProgressLineAndInTheLastLine) {
  Bench bench;
  Telemetry telemetry(bench.options());
  StepRecord record = telemetry_record(1);
  record.metrics = {{"epsilon", 0.5}, {"average_return", 12.0}, {"score", 0.31}};
  bench.now += 6;
  telemetry.record(record);
  EXPECT_NE(bench.screen.find("return 12  score 0.31  loss 1.0000\n"), std::string::npos) << bench.screen;
  record.step = 2;
  record.metrics = {{"epsilon", 0.5}, {"average_return", 14.5}, {"score", 0.42}};
  telemetry.record(record);
  RunSummary summary;
  summary.status = "done", summary.step = 2, summary.seconds = 6, summary.loss = 0.5;
  telemetry.finish(summary);
  EXPECT_NE(bench.screen.find("tiny  done at step 2 after 0:06  return 14.5  score 0.42  loss 0.5"), std::string::npos)
      << bench.screen;
}

TEST(Telemetry, AResumeThatMakesNoStepStillTellsTheReturn) {
  Bench bench;
  {
    Telemetry telemetry(bench.options());
    StepRecord record = telemetry_record(1);
    record.metrics = {{"average_return", 12.0}};
    telemetry.record(record);
  }
  auto options = bench.options();
  options.resume_step = 1;
  Telemetry telemetry(options);
  telemetry.finish({.status = "done", .step = 1, .seconds = 6});
  EXPECT_NE(bench.screen.find("after 0:06  return 12"), std::string::npos) << bench.screen;
}

TEST(Telemetry, ANewRunOfASetIsNotCalledResumed) {
  Bench bench;
  auto options = bench.options();
  options.resumed = true;  // a set begins its runs with `resume`
  {
    Telemetry telemetry(options);
    EXPECT_EQ(bench.text("events.jsonl"), "");
    telemetry.record(telemetry_record(1));
  }
  Telemetry again(options);
  EXPECT_NE(bench.text("events.jsonl").find("resumed after step 0; 1 later records dropped"), std::string::npos);
}

TEST(Telemetry, ATerminalGetsOneBarInPlaceAndOthersALineEveryFiveSeconds) {
  for (const bool tty : {true, false}) {
    Bench bench;
    auto options = bench.options();
    options.tty = tty;
    options.color = false;
    Telemetry telemetry(options);
    for (int64_t s = 1; s <= 600; ++s) bench.now += 0.02, telemetry.record(telemetry_record(s));  // 12 seconds
    const auto lines = std::count(bench.screen.begin(), bench.screen.end(), '\n');
    EXPECT_EQ(lines, tty ? 0 : 2);
    const auto redraws = std::count(bench.screen.begin(), bench.screen.end(), '\r');
    EXPECT_LE(redraws, tty ? 120 : 0);
    EXPECT_GE(redraws, tty ? 90 : 0);
    EXPECT_NE(bench.screen.find("/1000"), std::string::npos);
  }
}

TEST(Telemetry, QuietShowsWarningsOnlyAndNothingGoesToStdout) {
  Bench bench;
  auto options = bench.options();
  options.quiet = true;
  testing::internal::CaptureStdout();
  {
    Telemetry telemetry(options);
    telemetry.say("hello");
    for (int64_t s = 1; s <= 100; ++s) bench.now += 1, telemetry.record(telemetry_record(s));
    telemetry.finish(RunSummary{});
    EXPECT_EQ(bench.screen, "");
    telemetry.warn("careful");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(bench.screen, "warning: careful\n");
  EXPECT_NE(bench.text("logs/rank-0.log").find("warn  careful"), std::string::npos);
}

TEST(Telemetry, OtherRanksWriteTheirLogAndNothingElse) {
  Bench bench;
  auto options = bench.options();
  options.rank = 3;
  {
    Telemetry telemetry(options);
    telemetry.say("ready");
    telemetry.record(telemetry_record(1));
    telemetry.finish(RunSummary{});
  }
  EXPECT_NE(bench.text("logs/rank-3.log").find("ready"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(bench.dir.path()), {}), 1);
  EXPECT_EQ(bench.screen, "");
}

TEST(Telemetry, AFolderThatVanishesIsToldOnceAndTheRunGoesOn) {
  Bench bench;
  Telemetry telemetry(bench.options());
  std::filesystem::remove_all(bench.dir.path());
  for (int64_t s = 1; s <= 100; ++s) bench.now += 2, telemetry.record(telemetry_record(s));
  telemetry.finish(RunSummary{});
  size_t count = 0;
  for (size_t at = 0; (at = bench.screen.find("warning: training_stats.json", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 1u) << bench.screen;
}

TEST(Telemetry, AFolderThatCannotBeUsedIsRefusedAtOnce) {
  const TempDir dir;
  std::ofstream(dir / "file") << "x";
  TelemetryOptions options;
  options.run_dir = dir / "file";
  EXPECT_THROW(Telemetry{options}, std::exception);
}

TEST(Telemetry, ManyFastStepsAreThinnedForTensorBoardButNotInTheRecord) {
  Bench bench;
  uintmax_t bytes_at_10000 = 0;
  {
    Telemetry telemetry(bench.options());
    for (int64_t s = 1; s <= 20000; ++s) {
      bench.now += 0.0001;
      telemetry.record(telemetry_record(s));
      if (s == 10000) telemetry.flush();
    }
  }
  EXPECT_EQ(bench.records(), 20000);
  for (const auto& entry : std::filesystem::directory_iterator(bench.dir.path()))
    if (entry.path().filename().string().starts_with("events.out")) bytes_at_10000 = entry.file_size();
  EXPECT_LT(bytes_at_10000, 10100 * 200u);
}

TEST(Telemetry, JobsHaveARowAndTagsOfTheirOwn) {
  Bench bench;
  auto options = bench.options();
  options.tty = true;
  options.color = false;
  {
    Telemetry telemetry(options);
    for (int64_t s = 1; s <= 10; ++s)
      for (const char* job : {"agent-a", "agent-b"}) {
        auto r = telemetry_record(s);
        r.job = job;
        bench.now += 0.06;
        telemetry.record(r);
      }
    EXPECT_NE(bench.screen.find("agent-b"), std::string::npos);
    EXPECT_NE(bench.screen.find("\x1b[1A"), std::string::npos) << "two rows are redrawn";
  }
  EXPECT_EQ(bench.records(), 20);
}

}  // namespace
}  // namespace tandem
