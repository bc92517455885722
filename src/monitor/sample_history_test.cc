// What is kept, how much of it, and what it survives.
#include "monitor/sample_history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/errors.h"
#include "base/sqlite.h"
#include "base/temp_dir.h"
#include "monitor/samples_for_tests.h"
#include "monitor/trails.h"

namespace tandem {
namespace {

constexpr double kStart = 1'800'000'000;

TEST(History, KeepsSecondsThenMeansAndForgetsTheRest) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  const int64_t total = 30'000;  // more than eight hours
  for (int64_t i = 0; i < total; ++i) {
    MonitorSample sample = sample_for_tests(1, 0, kStart + static_cast<double>(i));
    sample.gpus[0].power_w = static_cast<double>(i);
    history.add(sample);
    if (i % 3000 == 2999) history.flush();
  }
  const double end = kStart + total;
  const auto fine = history.read(end, 600), middle = history.read(end, 21'600), coarse = history.read(end, 604'800);
  ASSERT_EQ(fine.size(), 2u);
  EXPECT_EQ(fine[0].source, "gpu:0");
  EXPECT_NEAR(static_cast<double>(fine[0].times.size()), 600, 5);
  EXPECT_NEAR(static_cast<double>(middle[0].times.size()), 2160, 5);
  EXPECT_NEAR(static_cast<double>(coarse[0].times.size()), 500, 2);
  // The mean over its minute, whoever wrote it.
  const auto at = static_cast<double>(coarse[0].times[7]) - kStart;
  EXPECT_NEAR(coarse[0].values[2][7], at + 29.5, 0.01);
  EXPECT_TRUE(std::isnan(coarse[0].values[5][7]));  // no fan
}

TEST(History, NeverGrowsPastItsSize) {
  const TempDir dir;
  constexpr uint64_t kMost = uint64_t{2} << 20;
  History history(dir / "h.sqlite", kMost);
  for (int hour = 0; hour < 40; ++hour) {  // many runs, each for an hour: every one is a source of its own
    for (int64_t i = 0; i < 3600; i += 2) {
      MonitorSample sample = sample_for_tests(4, 1, kStart + hour * 3600.0 + static_cast<double>(i));
      sample.runs[0].id = "run-" + std::to_string(hour);
      history.add(sample);
      if (i % 600 != 0) continue;
      history.flush();
      uint64_t all = 0;  // its journal counts too
      for (const auto& file : std::filesystem::directory_iterator(dir.path()))
        if (file.path().extension() != ".sqlite-shm") all += file.file_size();
      ASSERT_LE(all, kMost * 3 / 2);
    }
  }
  history.flush();
  EXPECT_EQ(history.trouble(), "");
  EXPECT_FALSE(history.in_memory());
  EXPECT_LE(std::filesystem::file_size(dir / "h.sqlite"), kMost);
  EXPECT_FALSE(history.read(kStart + 40 * 3600.0, 600).empty());  // and what happens now is there
}

TEST(History, OfAMonitorThatWasKilledIsWholeUpToTheLastSeconds) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    History history(dir / "h.sqlite");
    for (int64_t i = 0;; ++i) {
      history.add(sample_for_tests(8, 1, kStart + static_cast<double>(i)));
      if (i % 20 == 0) history.flush();
      if (i == 100) [[maybe_unused]]
        const auto sent = write(ready[1], "x", 1);
      if (i > 100'000) _exit(0);
    }
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  History history(dir / "h.sqlite");
  EXPECT_EQ(history.trouble(), "");
  const auto series = history.read(kStart + 100, 600);
  ASSERT_EQ(series.size(), 10u);
  EXPECT_GE(series[0].times.size(), 80u);
}

TEST(History, IsWrittenBySeveralAtOnceAndASecondCountsOnce) {
  const TempDir dir;
  std::vector<pid_t> children;
  for (int k = 0; k < 3; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      History history(dir / "h.sqlite");
      for (int64_t i = 0; i < 200; ++i) {
        history.add(sample_for_tests(2, 0, kStart + static_cast<double>(i)));
        if (i % 5 == 0) history.flush();
      }
      history.flush();
      _exit(history.trouble().empty() && !history.in_memory() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  History history(dir / "h.sqlite");
  const auto series = history.read(kStart + 200, 600);
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series[0].times.size(), 199u);  // the last second was not over
}

TEST(History, ThatIsDamagedOrCannotBeWrittenIsNoReasonToStop) {
  const TempDir dir;
  std::ofstream(dir / "h.sqlite") << std::string(10'000, 'x');
  History damaged(dir / "h.sqlite");
  EXPECT_FALSE(damaged.in_memory());
  EXPECT_NE(damaged.trouble().find("h.sqlite.damaged"), std::string::npos) << damaged.trouble();
  EXPECT_EQ(std::filesystem::file_size(dir / "h.sqlite.damaged"), 10'000u);  // set aside, never removed
  std::ofstream(dir / "file") << "";
  History nowhere(dir / "file" / "h.sqlite");
  EXPECT_TRUE(nowhere.in_memory());
  for (int i = 0; i < 20; ++i) nowhere.add(sample_for_tests(1, 0, kStart + i));
  EXPECT_FALSE(nowhere.read(kStart + 20, 600).empty());
}

TEST(History, ThatBreaksWhileItIsOpenIsSetAsideAndGoesOn) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  for (int i = 0; i < 10; ++i) history.add(sample_for_tests(1, 0, kStart + i));
  history.flush();
  { SqliteDatabase(dir / "h.sqlite", {.version = 1}).run("DROP TABLE points"); }
  for (int i = 10; i < 40; ++i) {
    history.add(sample_for_tests(1, 0, kStart + i));
    history.flush();
  }
  EXPECT_FALSE(history.in_memory());
  EXPECT_NE(history.trouble().find("h.sqlite.damaged"), std::string::npos) << history.trouble();
  EXPECT_TRUE(std::filesystem::exists(dir / "h.sqlite.damaged"));
  EXPECT_GE(History(dir / "h.sqlite").read(kStart + 40, 600).at(0).times.size(), 25u);
}

TEST(History, MayBeThrownAwayWhileItIsOpen) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  for (int i = 0; i < 10; ++i) history.add(sample_for_tests(1, 0, kStart + i));
  history.flush();
  std::filesystem::remove(dir / "h.sqlite");  // what SQLite keeps beside it stays, as when one types rm
  for (int i = 10; i < 20; ++i) history.add(sample_for_tests(1, 0, kStart + i));
  history.flush();
  EXPECT_FALSE(history.in_memory());
  History other(dir / "h.sqlite");
  EXPECT_EQ(other.trouble(), "");
  const auto series = other.read(kStart + 20, 600);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].times.front(), static_cast<int64_t>(kStart) + 9);  // from there on
}

TEST(History, OfAFileThatHoldsSomethingElseIsRefusedAndNothingIsLost) {
  const TempDir dir;
  std::ofstream(dir / "thesis") << "chapter one";
  EXPECT_THROW(History::check_is_ours(dir / "thesis"), ConfigError);
  EXPECT_THROW(History::check_is_ours(dir.path()), ConfigError);
  for (const int version : {0, 1, 7}) {  // 1 is ours as well, and that of other databases of ours
    const auto file = dir / fmt::format("mail-{}.db", version);
    { SqliteDatabase foreign(file, {.version = version, .tables = "CREATE TABLE letters (text TEXT)"}); }
    EXPECT_THROW(History::check_is_ours(file), ConfigError) << version;
  }
  EXPECT_EQ(std::filesystem::file_size(dir / "thesis"), 11u);
  std::ofstream(dir / "empty") << "";
  { History ours(dir / "h.sqlite"); }
  for (const char* name : {"none", "empty", "h.sqlite"}) EXPECT_NO_THROW(History::check_is_ours(dir / name)) << name;
}

TEST(History, HeldBySomebodyLosesNothing) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  {
    SqliteDatabase other(dir / "h.sqlite", {.version = 1});
    SqliteTransaction held(other);
    for (int i = 0; i < 10; ++i) history.add(sample_for_tests(1, 0, kStart + i));
    history.flush();
    EXPECT_TRUE(history.read(kStart + 10, 600).empty());
    EXPECT_EQ(history.trouble(), "");
  }
  EXPECT_EQ(history.read(kStart + 10, 600).at(0).times.size(), 9u);
  EXPECT_FALSE(history.in_memory());
}

TEST(History, GivesNoPointsToAnotherSourceWhenAMonitorBesideItForgetsOne) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  history.add(sample_for_tests(0, 0, kStart));
  history.add(sample_for_tests(0, 0, kStart + 1));
  history.flush();
  {
    SqliteDatabase other(dir / "h.sqlite", {.version = 1});
    other.run("DELETE FROM points; DELETE FROM sources; INSERT INTO sources (name) VALUES ('run:another')");
  }
  history.add(sample_for_tests(0, 0, kStart + 2));
  history.add(sample_for_tests(0, 0, kStart + 3));
  const auto series = history.read(kStart + 3, 600);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].source, "host");
}

TEST(History, ForgetsWhatAClockThatWasAheadHasLeft) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  for (int i = 0; i < 100; ++i) history.add(sample_for_tests(1, 0, kStart + 7200 + i));
  history.flush();
  for (int i = 0; i < 200; ++i) {  // two hours back: the clock was set right
    history.add(sample_for_tests(1, 0, kStart + i));
    if (i % 50 == 49) history.flush();
  }
  for (const HistorySeries& series : history.read(kStart + 200, 600)) {
    EXPECT_LE(series.times.back(), static_cast<int64_t>(kStart) + 200) << series.source;
    EXPECT_GE(series.times.size(), 190u) << series.source;
  }
  SqliteDatabase file(dir / "h.sqlite", {.version = 1});
  EXPECT_LE(file.number("SELECT max(t) FROM points WHERE tier = 0"), static_cast<int64_t>(kStart) + 200);
}

TEST(History, OfManyRunsGivesTheNewest) {
  History history("");
  for (int i = 0; i < 80; ++i) {
    MonitorSample sample = sample_for_tests(1, 1, kStart + i);
    sample.runs[0].id = "number-" + std::to_string(i / 2 + 10);
    history.add(sample);
  }
  std::vector<std::string> names;
  for (const HistorySeries& series : history.read(kStart + 80, 600)) names.push_back(series.source);
  ASSERT_EQ(names.size(), 34u);
  EXPECT_EQ(names[0], "gpu:0");
  EXPECT_EQ(names[2], "run:number-18");
  EXPECT_EQ(names.back(), "run:number-49");
}

TEST(History, OfARunThatEndedHasItsLastMinuteToo) {
  History history("");
  history.add(sample_for_tests(0, 1, kStart));
  for (int i = 1; i < 300; ++i) history.add(sample_for_tests(0, 0, kStart + i));
  const auto all = history.read(kStart + 300, 604'800);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].source, "run:tiny-20261115-190920-r6k9d0");
  EXPECT_EQ(all[1].times.size(), 1u);
}

TEST(History, OfAMonitorThatKeptFewerValuesIsReadOn) {
  const TempDir dir;
  const auto file = dir / "h.sqlite";
  {
    History history(file);
    for (int i = 0; i < 2; ++i) history.add(sample_for_tests(0, 1, kStart + i));  // the second ends the first
  }
  {
    SqliteDatabase database(file, {.version = 1, .tables = ""});
    SqliteStatement(database, "UPDATE points SET v = ? WHERE length(v) = 20")
        .bind(1, std::vector<float>{1, 2, 3})
        .step();
  }
  History history(file);
  MonitorSample sample = sample_for_tests(0, 1, kStart + 2);
  sample.runs[0].figures.take({{"average_return", 7}});
  history.add(sample);
  history.add(sample_for_tests(0, 1, kStart + 4));
  for (const HistorySeries& series : history.read(kStart + 5, 600)) {
    if (series.source == "host") continue;
    ASSERT_EQ(series.values.size(), kRunValues.size());
    ASSERT_EQ(series.times.size(), 2u);
    EXPECT_EQ(series.values[kRunSteps][0], 2);
    EXPECT_TRUE(std::isnan(series.values[kRunReturn][0]));
    EXPECT_EQ(series.values[kRunReturn][1], 7);
  }
}

TEST(Trails, BeginWithWhatWasKept) {
  const TempDir dir;
  History history(dir / "h.sqlite");
  for (int i = 0; i < 50; ++i) history.add(sample_for_tests(1, 0, kStart + i));
  Trails trails;
  trails.begin_with(history.read(kStart + 50, 300));
  EXPECT_EQ(trails.of("gpu:0", 0).size(), 49u);
  EXPECT_EQ(trails.of("gpu:0", 0).back(), 90);
  EXPECT_TRUE(trails.of("gpu:7", 0).empty());
}

}  // namespace
}  // namespace tandem
