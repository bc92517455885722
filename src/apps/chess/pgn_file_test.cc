// Games are added to a file, whole, and nothing that is there is lost.
#include "apps/chess/pgn_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "world/chess/pgn.h"

namespace tandem::chess {
namespace {

namespace fs = std::filesystem;

const std::string kGame = "[Event \"a\"]\n\n1. e4 *\n\n";

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string refusal_of_file(const fs::path& file) {
  try {
    PgnFile opened(file);
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "";
}

TEST(PgnFiles, KeepWhatIsThereAndBeginAGameAfterAnEmptyLine) {
  const TempDir dir;
  for (const auto& [before, between] : {std::pair<std::string, std::string>{"", ""},
                                        {"[Event \"b\"]\n\n1. d4 *\n\n", ""},
                                        {"[Event \"b\"]\n\n1. d4 *\n", "\n"},
                                        {"[Event \"b\"]\n\n1. d4 *", "\n\n"},
                                        {"*", "\n\n"}}) {
    std::ofstream(dir / "games.pgn", std::ios::binary) << before;
    PgnFile(dir / "games.pgn").add(kGame);
    EXPECT_EQ(text_of(dir / "games.pgn"), before + between + kGame);
  }
}

TEST(PgnFiles, ThatWereMadeAndGotNoGameAreTakenAway) {
  const TempDir dir;
  { const PgnFile file(dir / "none.pgn"); }
  EXPECT_FALSE(fs::exists(dir / "none.pgn"));
  std::ofstream(dir / "empty.pgn").flush();
  { const PgnFile file(dir / "empty.pgn"); }
  EXPECT_TRUE(fs::exists(dir / "empty.pgn")) << "somebody else's";
  PgnFile(dir / "one.pgn").add(kGame);
  EXPECT_EQ(text_of(dir / "one.pgn"), kGame);
}

TEST(PgnFiles, NewOnesTakeNoNameThatIsThere) {
  const TempDir dir;
  std::ofstream(dir / "m.pgn") << "mine";
  fs::create_symlink(dir / "elsewhere", dir / "m-2.pgn");  // leads to nothing
  PgnFile file = PgnFile::make_new(dir / "m");
  EXPECT_EQ(file.path(), dir / "m-3.pgn");
  file.add(kGame);
  EXPECT_EQ(text_of(dir / "m.pgn"), "mine");
  EXPECT_FALSE(fs::exists(dir / "elsewhere"));
}

TEST(PgnFiles, LinksAreNotFollowed) {
  const TempDir dir;
  std::ofstream(dir / "target") << "mine";
  fs::create_symlink(dir / "target", dir / "link.pgn");
  fs::create_symlink(dir / "nothing", dir / "dangling.pgn");
  for (const char* const link : {"link.pgn", "dangling.pgn"})
    EXPECT_NE(refusal_of_file(dir / link).find("links are not followed"), std::string::npos) << link;
  EXPECT_EQ(text_of(dir / "target"), "mine");
  EXPECT_FALSE(fs::exists(dir / "nothing"));
  fs::create_symlink("/dev/null", dir / "null");
  EXPECT_EQ(refusal_of_file(dir / "null"), "") << "a device is no file to be lost";
}

// Another program exchanges the link again and again: between the look at what it leads to and the opening, too. The
// way to it is long, so that both take their time.
TEST(PgnFiles, ALinkThatIsExchangedMeanwhileLeadsIntoNoFile) {
  const TempDir dir;
  std::ofstream(dir / "target") << "mine";
  std::string detour;
  while (detour.size() < 4000) detour += "./";
  constexpr int kLinks = 30;
  for (int i = 0; i < kLinks; ++i)
    fs::create_symlink(detour + "link" + std::to_string(i + 1), dir / ("link" + std::to_string(i)));
  const fs::path last = dir / ("link" + std::to_string(kLinks));
  fs::create_symlink("/dev/null", last);
  std::atomic<bool> over = false;
  std::thread exchanger([&] {
    for (bool file = true; !over; file = !file) {
      fs::create_symlink(file ? dir / "target" : fs::path("/dev/null"), dir / "next");
      fs::rename(dir / "next", last);
    }
  });
  for (int i = 0; i < 60; ++i) {
    try {
      PgnFile(dir / "link0").add(kGame);
    } catch (const ConfigError&) {
      continue;  // it led to the file at that moment
    }
  }
  over = true;
  exchanger.join();
  EXPECT_EQ(text_of(dir / "target"), "mine");
}

TEST(PgnFiles, APipeThatNobodyReadsIsRefusedAndNotWaitedFor) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal_of_file(dir / "pipe").find("nobody reads it"), std::string::npos);
  const int reader = ::open((dir / "pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  PgnFile(dir / "pipe").add(kGame);
  std::string read_there(kGame.size() + 1, '?');
  EXPECT_EQ(read(reader, read_there.data(), read_there.size()), static_cast<ssize_t>(kGame.size()));
  close(reader);
}

TEST(PgnFiles, OfTwoProgramsLoseNoGameWhenOneOfThemHadNone) {
  const TempDir dir;
  {
    std::optional<PgnFile> first(dir / "games.pgn");
    PgnFile second(dir / "games.pgn");
    first.reset();
    EXPECT_FALSE(fs::exists(dir / "games.pgn")) << "it had made the file, and had no game for it";
    second.add(kGame);
    second.add(kGame);
  }
  EXPECT_EQ(text_of(dir / "games.pgn"), kGame + kGame);
}

bool somebody_waits_for_a_lock() {
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);)
    if (line.find("-> FLOCK") != line.npos && line.find(" " + std::to_string(getpid()) + " ") != line.npos) return true;
  return false;
}

// Between its look whether the file is empty and its end nobody may add a game.
TEST(PgnFiles, ThatGotNoGameAreNotTakenAwayWhileSomebodyAddsOne) {
  if (!std::ifstream("/proc/locks")) GTEST_SKIP() << "no list of locks here";
  const TempDir dir;
  std::optional<PgnFile> made(dir / "games.pgn");
  const int fd = ::open((dir / "games.pgn").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  std::thread ends([&made] { made.reset(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto seen = [&dir] { return !fs::exists(dir / "games.pgn") || somebody_waits_for_a_lock(); };
  while (!seen() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(write(fd, kGame.data(), kGame.size()), static_cast<ssize_t>(kGame.size()));
  flock(fd, LOCK_UN);
  ends.join();
  close(fd);
  EXPECT_EQ(text_of(dir / "games.pgn"), kGame);
}

// The file is made and taken away by those without a game, while another one adds its games.
TEST(PgnFiles, OfManyProgramsLoseNoGame) {
  const TempDir dir;
  std::atomic<bool> over = false;
  std::thread makers([&] {
    while (!over) const PgnFile file(dir / "games.pgn");
  });
  for (int i = 0; i < 300; ++i) {
    PgnFile(dir / "games.pgn").add(kGame);
    EXPECT_EQ(text_of(dir / "games.pgn"), kGame) << i;
    fs::remove(dir / "games.pgn");
  }
  over = true;
  makers.join();
}

TEST(PgnFiles, ThatCannotBeWrittenSayWhy) {
  const TempDir dir;
  EXPECT_NE(refusal_of_file(dir / "no/such/folder").find("No such file"), std::string::npos);
  EXPECT_NE(refusal_of_file(dir.path()).find("directory"), std::string::npos);
  PgnFile full("/dev/full");
  EXPECT_THROW(full.add(kGame), IoError);
}

// A limit of the size stands for a full disk: half of the game is written, then no more.
TEST(PgnFiles, AGameThatDoesNotFitLeavesNothingBehind) {
  const TempDir dir;
  PgnFile file(dir / "games.pgn");
  file.add(kGame);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit little{kGame.size() + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW(file.add(kGame), IoError);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(text_of(dir / "games.pgn"), kGame);
  file.add(kGame);
  EXPECT_EQ(text_of(dir / "games.pgn"), kGame + kGame);
}

TEST(PgnFiles, TakeGamesOfSeveralWritersEachWhole) {
  const TempDir dir;
  constexpr int kGames = 50;
  const auto add_many = [&dir](char letter) {
    for (int i = 0; i < kGames; ++i)
      PgnFile(dir / "games.pgn").add("[Event \"" + std::string(4000, letter) + "\"]\n\n1. e4 *\n\n");
  };
  std::ofstream(dir / "games.pgn").flush();
  std::thread other([&] { add_many('a'); });
  add_many('b');
  other.join();
  std::ifstream in(dir / "games.pgn");
  PgnReader reader(in);
  int games = 0;
  for (; reader.next(); ++games) EXPECT_FALSE(reader.fault()) << reader.fault()->text();
  EXPECT_EQ(games, 2 * kGames);
}

}  // namespace
}  // namespace tandem::chess
