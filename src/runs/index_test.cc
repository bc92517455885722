#include "runs/index.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

// A finished run with a loss, an accuracy and a setting.
RunFolder add_run(const std::filesystem::path& root, const std::string& recipe, const std::string& started, double loss,
                  double accuracy, const std::string& digest = "") {
  const auto run = RunFolder::create(root, recipe);
  RunSummary summary;
  summary.status = "done", summary.step = 100, summary.seconds = 12, summary.loss = loss, summary.digest = digest,
  summary.kind = "cpu";
  run.write_status(summary);
  update_run_json(run.dir(), {{"started", started}});
  std::ofstream(run.training_stats_json()) << nlohmann::json{
      {{"iteration", 0}, {"step", 50}, {"metrics", {{"accuracy", 0.1}, {"once", 5}}}},
      {{"iteration", 1}, {"step", 100}, {"seconds", 2}, {"samples", 10}, {"metrics", {{"accuracy", accuracy}}}}};
  run.write_recipe("seed = " + std::to_string(static_cast<int>(loss * 10)) + "  # --seed\nbatch_size = 96\n");
  return run;
}

TEST(RunIndex, ListsNewestFirstAndFilters) {
  const TempDir dir;
  const auto a = add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8);
  const auto b = add_run(dir.path(), "chess", "2026-01-03T00:00:00Z", 0.3, 0.9);
  const auto c = add_run(dir.path(), "tiny", "2026-01-02T00:00:00Z", 0.4, 0.7);
  RunIndex index(dir.path());
  EXPECT_FALSE(index.in_memory());
  const auto rows = index.list();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].id, b.id());
  EXPECT_EQ(rows[2].id, a.id());
  EXPECT_EQ(rows[2].metrics.at("accuracy"), 0.8);
  EXPECT_EQ(rows[2].metrics.at("once"), 5) << "a metric measured only early is kept";
  EXPECT_EQ(rows[2].metrics.at("samples_per_s"), 5);
  EXPECT_EQ(rows[2].settings.at("batch_size"), "96");
  EXPECT_EQ(index.list({.recipe = "tiny", .status = "done", .limit = 1}).at(0).id, c.id());
  EXPECT_TRUE(index.list({.recipe = "", .status = "failed", .limit = 0}).empty());
}

TEST(RunIndex, SyncReadsOnlyWhatChangedAndForgetsWhatIsGone) {
  const TempDir dir;
  const auto a = add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8);
  const auto b = add_run(dir.path(), "tiny", "2026-01-02T00:00:00Z", 0.4, 0.7);
  RunIndex index(dir.path());
  EXPECT_EQ(index.sync(), 0);
  RunSummary summary;
  summary.status = "failed", summary.exit_code = 7;
  a.write_status(summary);
  EXPECT_EQ(index.sync(), 1);
  EXPECT_EQ(index.list()[1].status, "failed");
  std::filesystem::remove_all(b.dir());
  EXPECT_EQ(index.sync(), 1);
  EXPECT_EQ(index.list().size(), 1u);
  EXPECT_EQ(RunIndex(dir.path()).sync(), 0) << "a second opening finds everything known";
}

TEST(RunIndex, AMissingDamagedOrForeignIndexIsRebuilt) {
  const TempDir dir;
  add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8);
  const auto file = dir / "index.sqlite";
  for (const int damage : {0, 1, 2, 3, 4}) {
    { RunIndex index(dir.path()); }
    std::filesystem::remove(file.string() + "-wal");
    std::filesystem::remove(file.string() + "-shm");
    if (damage == 0) std::filesystem::remove(file);
    if (damage == 1) std::ofstream(file, std::ios::trunc) << "this is no database at all, only text of some length";
    if (damage == 2) std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    if (damage == 3) {  // a page overwritten in the middle
      std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(4096);
      f << std::string(2000, '\xA5');
    }
    if (damage == 4) {  // a newer tandem's: user_version in the header
      std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(60);
      f << std::string("\0\0\0\x63", 4);
    }
    RunIndex index(dir.path());
    ASSERT_EQ(index.list().size(), 1u) << damage;
    EXPECT_FALSE(index.in_memory()) << damage;
    EXPECT_EQ(index.rebuild(), 1) << damage;
  }
}

TEST(RunIndex, DamagedFoldersAreListedNotFatal) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "odd");
  std::ofstream(dir / "odd/run.json") << R"({"id":5,"step":"x","loss":"y","exit_code":[],"status":{},"extra":7})";
  std::ofstream(dir / "odd/training_stats.json") << R"([1,{"metrics":[1],"step":"z"},{"metrics":{"a":"b"}}])";
  std::ofstream(dir / "odd/recipe.toml") << "\xFF = \xFE\n";
  std::filesystem::create_directories(dir / "not-a-run");
  RunIndex index(dir.path());
  const auto rows = index.list();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].id, "odd");
  EXPECT_EQ(rows[0].status, "unknown");
}

TEST(RunIndex, ARootThatIsNotThereOrNotWritableStillLists) {
  const TempDir dir;
  RunIndex none(dir / "none");
  EXPECT_TRUE(none.list().empty());
  EXPECT_TRUE(none.in_memory());
  EXPECT_FALSE(std::filesystem::exists(dir / "none"));
  add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8);
  std::filesystem::create_directories(dir / "index.sqlite");  // cannot be opened as a file, whoever we are
  RunIndex index(dir.path());
  EXPECT_TRUE(index.in_memory());
  EXPECT_EQ(index.list().size(), 1u);
}

TEST(RunIndex, SeveralProcessesMayUseItAtOnce) {
  const TempDir dir;
  for (int i = 0; i < 6; ++i) add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8);
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < 5; ++i) {
        RunIndex index(dir.path());
        good = good && !index.in_memory() && index.rebuild() == 6;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(RunIndex, ComparesSettingsMetricsAndWeights) {
  const TempDir dir;
  const auto a = add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.8, "d1");
  const auto b = add_run(dir.path(), "tiny", "2026-01-02T00:00:00Z", 0.3, 0.9, "d2");
  const auto c = add_run(dir.path(), "tiny", "2026-01-03T00:00:00Z", 0.5, 0.8, "d1");
  RunIndex index(dir.path());
  const auto differ = index.compare(a.id(), b.id());
  ASSERT_EQ(differ.settings.size(), 1u);
  EXPECT_EQ(differ.settings[0].key, "seed");
  EXPECT_EQ(differ.settings[0].a, "5");
  EXPECT_EQ(differ.settings[0].b, "3");
  EXPECT_EQ(differ.same_digest, false);
  EXPECT_TRUE(differ.same_kind);
  EXPECT_EQ(index.compare(a.id(), c.id()).same_digest, true);
  EXPECT_TRUE(index.compare(a.id(), c.id()).settings.empty());
  EXPECT_THROW(index.compare(a.id(), "nobody"), ConfigError);
}

TEST(RunIndex, BestKnowsWhichWayIsBetterAndCanBeTold) {
  const TempDir dir;
  const auto a = add_run(dir.path(), "tiny", "2026-01-01T00:00:00Z", 0.5, 0.95);
  const auto b = add_run(dir.path(), "tiny", "2026-01-02T00:00:00Z", 0.3, 0.9);
  const auto c = add_run(dir.path(), "chess", "2026-01-03T00:00:00Z", 0.1, 0.1);
  RunIndex index(dir.path());
  EXPECT_EQ(index.best("loss").id, c.id());
  EXPECT_EQ(index.best("loss", "tiny").id, b.id());
  EXPECT_EQ(index.best("accuracy").id, a.id());
  EXPECT_EQ(index.best("accuracy", "", "min").id, c.id());
  try {
    index.best("elo");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.render().find("accuracy, loss, once, samples_per_s"), std::string::npos) << error.render();
  }
  EXPECT_THROW(index.best("loss", "", "up"), ConfigError);
}

TEST(RunIndex, ARunWhoseProcessDiedIsSeenAsSuchWithoutAChangeInItsFolder) {
  const TempDir dir;
  const auto run = RunFolder::create(dir.path(), "tiny");
  int ready[2], leave[2];
  ASSERT_EQ(::pipe(ready) | ::pipe(leave), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    run.write_status(RunSummary{});
    char byte = 1;
    if (::write(ready[1], &byte, 1) != 1 || ::read(leave[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  RunIndex index(dir.path());
  EXPECT_EQ(index.list().at(0).status, "running");
  ASSERT_EQ(::write(leave[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(index.list().at(0).status, "died");
  for (const int fd : {ready[0], ready[1], leave[0], leave[1]}) ::close(fd);
}

}  // namespace
}  // namespace tandem
