// Games are added to a file, whole, and nothing that is there is lost.
#include "apps/chess/pgn_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
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
