// A run as its folder shows it.
#include "monitor/run_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/temp_dir.h"
#include "monitor/clean_text.h"
#include "monitor/run_finder.h"
#include "monitor/words.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"
#include "telemetry/metrics_line.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::string step_line(int64_t step, double time) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0 / static_cast<double>(step);
  record.seconds = 0.1;
  record.samples = 32;
  record.phase_seconds = {{"act", 0.025}, {"learn", 0.075}};
  record.time = time;
  return metrics_line(record);
}

void append(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

struct Folder {
  TempDir dir;
  Folder() {
    update_run_json(dir.path(), {{"id", "tiny-20261115-190920-abcdef"}, {"recipe", "tiny"}, {"total_steps", 1000}});
    write_run_status(dir.path(), {.status = "running"});  // this process runs it
  }
};

TEST(Tail, GivesWholeLinesOnceAndOfALongFileTheEnd) {
  const TempDir dir;
  Tail tail(dir / "f", 64);
  EXPECT_EQ(tail.read_new(), "");
  append(dir / "f", "one\ntwo\nthr");
  EXPECT_EQ(tail.read_new(), "one\ntwo\n");
  EXPECT_EQ(tail.read_new(), "");
  append(dir / "f", "ee\n");
  EXPECT_EQ(tail.read_new(), "three\n");
  append(dir / "f", std::string(500, 'x') + "\nlast\n");
  EXPECT_EQ(tail.read_new(), "last\n");
  std::ofstream(dir / "g") << "new\n";
  fs::rename(dir / "g", dir / "f");  // as a resume replaces it
  EXPECT_EQ(tail.read_new(), "new\n");
  EXPECT_TRUE(tail.began_anew());
}

TEST(Tail, PassesOverALineThatIsTooLongAlsoWhenItComesInPieces) {
  const TempDir dir;
  Tail tail(dir / "f", 64);
  append(dir / "f", std::string(100, 'x'));
  EXPECT_EQ(tail.read_new(), "");
  append(dir / "f", "end of it\nnext\n");
  EXPECT_EQ(tail.read_new(), "next\n");
}

TEST(Tail, SeesAFileThatIsGoneOrWrittenAnewUnderTheSameInode) {
  const TempDir dir;
  Tail tail(dir / "f", 1024);
  append(dir / "f", "one\ntwo\n");
  EXPECT_EQ(tail.read_new(), "one\ntwo\n");
  std::ofstream(dir / "f", std::ios::trunc) << "another one, longer\n";  // cut, and longer again before the next look
  EXPECT_EQ(tail.read_new(), "another one, longer\n");
  EXPECT_TRUE(tail.began_anew());
  fs::remove(dir / "f");
  EXPECT_EQ(tail.read_new(), "");
  EXPECT_TRUE(tail.began_anew());
  EXPECT_EQ(tail.modified(), 0);
  append(dir / "f", "new\n");
  EXPECT_EQ(tail.read_new(), "new\n");
}

TEST(RunWatch, TellsStepRateLossAndPhasesFromTheNewLinesAlone) {
  const Folder folder;
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  const double now = unix_now();
  for (int i = 1; i <= 20; ++i) append(folder.dir / "metrics.jsonl", step_line(i, now - 2 + 0.1 * i));
  RunReading run = watch.read(now, 1, meter);
  EXPECT_EQ(run.status, "running");
  EXPECT_EQ(run.step, 20);
  EXPECT_NEAR(run.steps_per_s.value_or(0), 10, 0.01);
  EXPECT_NEAR(run.samples_per_s.value_or(0), 320, 1);
  EXPECT_NEAR(run.seconds_left.value_or(0), 98, 1);
  EXPECT_NEAR(run.loss.value_or(0), 1.0 / 20, 1e-6);
  ASSERT_EQ(run.phases.size(), 2u);
  EXPECT_NEAR(run.phases[1].second, 0.75, 1e-9);
  EXPECT_TRUE(run.window_loss.has_value());
  run = watch.read(now + 1, 2, meter);
  EXPECT_FALSE(run.window_loss.has_value());  // nothing new
  EXPECT_EQ(run.step, 20);
  EXPECT_TRUE(watch.read(now + 300, 301, meter).stalled());
}

TEST(RunWatch, TellsReturnAndScoreOfTheAgentAndOfSeveral) {
  const Folder folder;
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  StepRecord record;
  record.step = 1, record.time = unix_now();
  record.metrics = {{"epsilon", 0.5}, {"average_return", 12.5}, {"score", 0.31}};
  append(folder.dir / "metrics.jsonl", metrics_line(record));
  RunReading run = watch.read(unix_now(), 1, meter);
  EXPECT_EQ(run.figures.text(), "return 12.5  score 0.31");
  const Folder other;
  RunWatch several(other.dir.path());
  record.metrics = {{"a\nb.score", 0.5}, {"c.score", 0.25}};
  append(other.dir / "metrics.jsonl", metrics_line(record));
  run = several.read(unix_now(), 1, meter);
  EXPECT_EQ(run.figures.text(), "scores 0.25 to 0.50");
  EXPECT_EQ(run.figures.agents[0].name, "a b") << "a name is somebody's text";
}

TEST(RunWatch, CallsARunByItsAgent) {
  const Folder folder;
  HostMeter meter;
  append(folder.dir / "recipe.toml", "recipe = \"web-agent\"\nagent = \"requirements\"\n");
  RunWatch watch(folder.dir.path());
  EXPECT_EQ(watch.read(unix_now(), 1, meter).name, "requirements");
}

TEST(RunWatch, ReadsTheWorkersFromLiveJsonAndForgetsAStaleOne) {
  const Folder folder;
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  append(
      folder.dir / "live.json",
      R"({"format":1,"step":7,"ranks":[{"rank":1,"device":"cuda:3","uuid":"GPU-x","pid":)" + std::to_string(getpid()) +
          R"(,"state":"computing","phase":"learn","first":12,"shards":12,"shards_per_s":80.5,"busy":0.5,"restarts":2},7]})");
  const RunReading run = watch.read(unix_now(), 1, meter);
  ASSERT_EQ(run.ranks.size(), 1u);
  EXPECT_EQ(run.ranks[0].device, "cuda:3");
  EXPECT_EQ(run.ranks[0].first_shard, 12);
  EXPECT_EQ(run.ranks[0].busy_percent, 50);
  EXPECT_TRUE(run.ranks[0].memory_bytes.has_value());
  EXPECT_EQ(run.step, 7);
  EXPECT_TRUE(watch.read(unix_now() + 60, 61, meter).ranks.empty());
}

// The folder may lie on another machine's disk, whose clock is not ours; ours may be set.
TEST(RunWatch, GoesByWhatItSeesNotByClocksThatDisagree) {
  const Folder folder;
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  const double now = unix_now();
  const auto live = [&](int64_t step) {
    write_file_atomically(folder.dir / "live.json",
                          R"({"step":)" + std::to_string(step) + R"(,"ranks":[{"rank":0,"device":"cpu:0"}]})");
    const timespec long_ago[2] = {{1000, 0}, {1000, step}};
    ASSERT_EQ(utimensat(AT_FDCWD, (folder.dir / "live.json").c_str(), long_ago, 0), 0);
  };
  live(1);
  EXPECT_TRUE(watch.read(now, 1, meter).ranks.empty());  // it may be old
  live(2);
  EXPECT_EQ(watch.read(now, 2, meter).ranks.size(), 1u);  // it has changed before our eyes
  for (int i = 1; i <= 20; ++i) append(folder.dir / "metrics.jsonl", step_line(i, now + 0.1 * i));
  EXPECT_NEAR(watch.read(now + 2, 3, meter).steps_per_s.value_or(0), 10, 0.01);
  for (int i = 21; i <= 40; ++i) append(folder.dir / "metrics.jsonl", step_line(i, now - 3600 + 0.1 * i));
  const RunReading run = watch.read(now - 3598, 4, meter);  // an hour back
  EXPECT_NEAR(run.steps_per_s.value_or(0), 10, 0.01);
  EXPECT_FALSE(run.stalled());
  EXPECT_TRUE(watch.read(now - 3598, 304, meter).stalled());  // five minutes without a step, whatever the clock shows
}

TEST(RunWatch, OfARunThatWasResumedWaitsForItsFirstStep) {
  const Folder folder;
  HostMeter meter;
  for (int i = 1; i <= 20; ++i) append(folder.dir / "metrics.jsonl", step_line(i, unix_now() - 7200 + 0.1 * i));
  RunWatch watch(folder.dir.path());
  EXPECT_FALSE(watch.read(unix_now(), 10'000, meter).stalled());  // run.json was written a moment ago
  EXPECT_TRUE(watch.read(unix_now() + 60, 10'060, meter).stalled());
}

TEST(RunWatch, ForgetsTheRunBeforeWhenAnotherHasItsFolder) {
  const Folder folder;
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  append(folder.dir / "metrics.jsonl", step_line(20, unix_now()));
  append(folder.dir / "events.jsonl", R"({"t":1,"kind":"warning","text":"hot"})"
                                      "\n");
  EXPECT_EQ(watch.read(unix_now(), 1, meter).warning, "hot");
  fs::remove(folder.dir / "metrics.jsonl");
  fs::remove(folder.dir / "events.jsonl");
  const RunReading run = watch.read(unix_now(), 2, meter);
  EXPECT_EQ(run.step, 0);
  EXPECT_FALSE(run.loss.has_value());
  EXPECT_FALSE(run.event_time.has_value());
  EXPECT_EQ(run.warning, "");
}

TEST(RunWatch, OfAnotherMachineTakesNoProcessOfThisOneForItsWorker) {
  const Folder folder;
  update_run_json(folder.dir.path(), {{"process", {{"pid", 1}, {"host", "elsewhere"}}}});
  append(folder.dir / "live.json", R"({"ranks":[{"rank":0,"pid":)" + std::to_string(getpid()) + "}]}");
  HostMeter meter;
  RunWatch watch(folder.dir.path());
  const RunReading run = watch.read(unix_now(), 1, meter);
  EXPECT_EQ(run.host, "elsewhere");
  ASSERT_EQ(run.ranks.size(), 1u);
  EXPECT_FALSE(run.ranks[0].pid.has_value());
  EXPECT_FALSE(run.ranks[0].memory_bytes.has_value());
}

TEST(RunWatch, TamesWhatAStrangerWroteIntoAFolder) {
  const TempDir dir;
  const fs::path folder = dir / "evil-\xff\x1b[2J";
  fs::create_directories(folder);
  append(folder / "run.json",
         R"({"status":"running","recipe":")" + std::string(100'000, 'r') + R"(","step":18446744073709551615})");
  append(folder / "live.json",
         R"({"ranks":[{"rank":9e9,"first":9223372036854775807,"shards":9223372036854775807,"state":"a\u001b[31mb"}]})");
  HostMeter meter;
  const RunReading run = RunWatch(folder).read(unix_now(), 1, meter);
  EXPECT_EQ(run.id, "evil-\xef\xbf\xbd [2J");
  EXPECT_LE(run.recipe.size(), kLongestName);
  EXPECT_GT(run.step, 0);
  ASSERT_EQ(run.ranks.size(), 1u);
  EXPECT_EQ(run.ranks[0].state, "a [31mb");
  EXPECT_EQ(shards_text(run.ranks[0]), "shards 1000000000-1999999999");
}

TEST(RunWatch, OfADamagedFolderSaysWhatItCan) {
  const TempDir dir;
  for (const char* name : {"run.json", "live.json", "metrics.jsonl", "events.jsonl"})
    append(dir / name, "{\"step\":[1,\n\xff\n");
  HostMeter meter;
  RunWatch watch(dir.path());
  const RunReading run = watch.read(unix_now(), 1, meter);
  EXPECT_EQ(run.status, "unknown");
  EXPECT_FALSE(run.loss.has_value());
}

TEST(RunWatch, IsNotHeldByPipesNorFilledByAHugeFile) {
  const TempDir dir;
  for (const char* name : {"run.json", "metrics.jsonl", "events.jsonl"})
    ASSERT_EQ(mkfifo((dir / name).c_str(), 0600), 0);  // nobody writes: who opened one would wait for ever
  HostMeter meter;
  EXPECT_EQ(RunWatch(dir.path()).read(unix_now(), 1, meter).status, "unknown");
  const TempDir other;
  std::string ranks = "{}";
  for (int i = 0; i < 100'000; ++i) ranks += ",{}";
  append(other / "run.json", R"({"status":"running"})");
  append(other / "live.json", R"({"ranks":[)" + ranks + "]}");
  EXPECT_EQ(RunWatch(other.path()).read(unix_now(), 1, meter).ranks.size(), 1024u);
}

TEST(RunFinder, FindsRunsOfARootAgentsOfASetAndForeignFoldersOfWorkers) {
  const TempDir dir;
  const auto make = [&](const fs::path& folder) {
    fs::create_directories(folder);
    append(folder / "run.json", "{}");
  };
  make(dir / "root" / "a");
  make(dir / "root" / "old");
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir / "root" / "old" / "run.json").c_str(), long_ago, 0), 0);
  make(dir / "root" / "set");
  append(dir / "root" / "set" / "agents.json", "{}");
  make(dir / "root" / "set" / "agents" / "analysis");
  make(dir / "elsewhere" / "b");
  fs::create_directories(dir / "proc" / "17");
  append(dir / "proc" / "17" / "cmdline", std::string("/x/tandem-worker\0work\0b\0", 24));
  fs::create_symlink(dir / "elsewhere", dir / "proc" / "17" / "cwd");
  const RunFinder finder({dir / "root"}, true, dir / "proc");
  std::vector<std::string> names;
  for (const FoundRun& run : finder.find(unix_now(), 600))
    names.push_back(run.name.empty() ? run.dir.filename().string() : run.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "set", "set/analysis"}));
}

}  // namespace
}  // namespace tandem
