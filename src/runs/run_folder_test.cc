#include "runs/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

std::string what_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "";
}

TEST(RunFolder, IsNamedByRecipeTimeAndSixLetters) {
  const TempDir dir;
  const auto run = RunFolder::create(dir / "runs", "tiny");
  EXPECT_TRUE(std::regex_match(run.id(), std::regex("tiny-[0-9]{8}-[0-9]{6}-[a-z2-9]{6}"))) << run.id();
  EXPECT_EQ(run.dir(), dir / "runs" / run.id());
  EXPECT_TRUE(std::filesystem::is_directory(run.logs()));
  EXPECT_TRUE(std::filesystem::is_directory(run.checkpoints()));
  EXPECT_EQ(read_run_json(run.dir())["status"], "created");
}

TEST(RunFolder, RunsThatStartInTheSameSecondNeverShareAFolder) {
  const TempDir dir;
  std::vector<std::string> ids(40);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 10; ++i) ids[t * 10 + i] = RunFolder::create(dir.path(), "tiny").id();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 40u);
}

TEST(RunFolder, ARecipeGivenAsAPathMakesASafeName) {
  const TempDir dir;
  EXPECT_TRUE(RunFolder::create(dir.path(), "../x/my recipe.toml").id().starts_with("my-recipe-"));
  EXPECT_TRUE(RunFolder::create(dir.path(), "..").id().starts_with("run-"));
}

TEST(RunFolder, AnExactFolderMayExistIfItIsEmpty) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "here");
  const auto run = RunFolder::create(dir / "runs", "tiny", dir / "here");
  EXPECT_EQ(run.dir(), dir / "here");
  EXPECT_TRUE(run.id().starts_with("tiny-"));
  EXPECT_EQ(RunFolder::open(dir / "here/").id(), run.id());
  EXPECT_EQ(RunFolder::open(dir / "here").recipe(), "tiny");
}

TEST(RunFolder, AFolderThatIsNotEmptyIsRefusedAndUntouched) {
  const TempDir dir;
  std::ofstream(dir / "thesis.tex") << "x";
  const std::string text = what_of([&] { RunFolder::create("runs", "tiny", dir.path()); });
  EXPECT_NE(text.find("is not empty"), text.npos) << text;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  const auto run = RunFolder::create(dir / "runs", "tiny");
  const std::string again = what_of([&] { RunFolder::create("runs", "tiny", run.dir()); });
  EXPECT_NE(again.find("tandem resume"), again.npos) << again;
}

TEST(RunFolder, AFolderThatCannotBeWrittenIsRefused) {
  const TempDir dir;
  std::ofstream(dir / "file") << "x";
  for (const auto& root : {dir / "file", dir / "file" / "below", std::filesystem::path("/proc/nowhere")}) {
    EXPECT_NE(what_of([&] { RunFolder::create(root, "tiny"); }).find("cannot write the run folder"), std::string::npos)
        << root;
    EXPECT_NE(what_of([&] { RunFolder::create("runs", "tiny", root); }), "") << root;
  }
  if (::geteuid() == 0) return;  // root may write anywhere
  std::filesystem::create_directories(dir / "locked");
  ::chmod((dir / "locked").c_str(), 0555);
  EXPECT_NE(what_of([&] { RunFolder::create(dir / "locked", "tiny"); }), "");
  EXPECT_NE(what_of([&] { RunFolder::create("runs", "tiny", dir / "locked"); }), "");
  ::chmod((dir / "locked").c_str(), 0755);
}

TEST(RunFolder, IsFoundByPathIdPrefixTailOrLast) {
  const TempDir dir;
  const auto first = RunFolder::create(dir.path(), "alpha");
  const auto second = RunFolder::create(dir.path(), "beta");
  update_run_json(first.dir(), {{"started", "2026-01-01T00:00:00Z"}});
  update_run_json(second.dir(), {{"started", "2026-01-02T00:00:00Z"}});
  std::filesystem::create_directories(dir / "zzz-no-run");
  const std::string tail = first.id().substr(first.id().size() - 6);
  EXPECT_EQ(RunFolder::find(dir.path(), first.dir().string()).id(), first.id());
  EXPECT_EQ(RunFolder::find(dir.path(), first.id()).id(), first.id());
  EXPECT_EQ(RunFolder::find(dir.path(), "alph").id(), first.id());
  EXPECT_EQ(RunFolder::find(dir.path(), tail).id(), first.id());
  EXPECT_EQ(RunFolder::find(dir.path(), "last").id(), second.id());
}

TEST(RunFolder, ANameThatFitsNoneOrSeveralTellsWhatThereIs) {
  const TempDir dir;
  EXPECT_NE(what_of([&] { RunFolder::find(dir.path(), "last"); }).find("there are no runs"), std::string::npos);
  const auto one = RunFolder::create(dir.path(), "tiny");
  const auto two = RunFolder::create(dir.path(), "tiny");
  const std::string none = what_of([&] { RunFolder::find(dir.path(), "!"); });
  EXPECT_NE(none.find(one.id()), none.npos) << none;
  const std::string several = what_of([&] { RunFolder::find(dir.path(), "tiny"); });
  EXPECT_NE(several.find("'tiny' names 2 runs"), several.npos) << several;
  EXPECT_NE(what_of([&] { RunFolder::open(dir.path()); }).find("is not a run folder"), std::string::npos);
}

TEST(RunFolder, AFolderElsewhereIsFoundByItsNameInTheRoot) {
  const TempDir dir;
  const auto root = dir / "runs", elsewhere = dir / "data" / "mine";
  const auto run = RunFolder::create(root, "tiny", elsewhere);
  const auto link = run.link_into(root);
  EXPECT_EQ(link, std::filesystem::canonical(root) / "mine");
  EXPECT_EQ(RunFolder::find(root, "mine").id(), run.id());
  EXPECT_EQ(RunFolder::find(root, "mine").dir(), std::filesystem::canonical(elsewhere));
  EXPECT_EQ(RunFolder::find(root, "last").id(), run.id());
  // A second one of that name is found by its id; one whose folder is gone gives its name back.
  const auto second = RunFolder::create(root, "tiny", dir / "other" / "mine");
  second.link_into(root);
  EXPECT_EQ(RunFolder::find(root, second.id()).id(), second.id());
  EXPECT_EQ(RunFolder::find(root, "mine").id(), run.id());
  std::filesystem::remove_all(elsewhere);
  const auto third = RunFolder::create(root, "tiny", dir / "third" / "mine");
  third.link_into(root);
  EXPECT_EQ(RunFolder::find(root, "mine").id(), third.id());
  const auto inside = RunFolder::create(root, "tiny", root / "inside");
  EXPECT_EQ(inside.link_into(root), "") << "it is there already";
}

TEST(RunFolder, EnvOfEarlierStartsIsKept) {
  const TempDir dir;
  const auto run = RunFolder::create(dir.path(), "tiny");
  run.write_env({{"tandem", "1"}});
  run.write_env({{"tandem", "2"}});
  run.write_env({{"tandem", "3"}});
  const auto env = nlohmann::json::parse(*read_small_file(run.env_json()));
  EXPECT_EQ(env["versions"]["tandem"], "3");
  ASSERT_EQ(env["previous"].size(), 2u);
  EXPECT_EQ(env["previous"][0]["versions"]["tandem"], "1");
  EXPECT_FALSE(env["previous"][1].contains("previous"));
}

}  // namespace
}  // namespace tandem
