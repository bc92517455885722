#include "apps/chess/player_name.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"

namespace tandem::chess {
namespace {

using Kind = PlayerName::Kind;

TEST(PlayerNames, SayKindLimitsAndOptions) {
  EXPECT_EQ(read_player_name("random").kind, Kind::kRandom);
  EXPECT_EQ(read_player_name("greedy").kind, Kind::kGreedy);
  EXPECT_EQ(read_player_name("minimax").depth, std::nullopt);
  EXPECT_EQ(read_player_name("minimax:depth=4").depth, 4);
  EXPECT_EQ(read_player_name("stockfish").kind, Kind::kStockfish);
  EXPECT_EQ(read_player_name("stockfish:1500").elo, 1500);
  EXPECT_EQ(read_player_name("stockfish:nodes=1000").nodes, 1000);
  const PlayerName both = read_player_name("stockfish:1500,movetime=50,depth=9,option.Skill Level=3");
  EXPECT_EQ(both.elo, 1500);
  EXPECT_EQ(both.move_time_ms, 50);
  EXPECT_EQ(both.depth, 9);
  ASSERT_EQ(both.options.size(), 1u);
  EXPECT_EQ(both.options[0], (std::pair<std::string, std::string>("Skill Level", "3")));
}

TEST(PlayerNames, APathKeepsItsCommasAndColons) {
  EXPECT_EQ(read_player_name("uci:/path/to/engine").engine, "/path/to/engine");
  EXPECT_EQ(read_player_name("uci:/a,b:c/engine").engine, "/a,b:c/engine");
  const PlayerName name = read_player_name("uci:/a, b/engine,nodes=5,option.Path=/x,y,option.Hash=8");
  EXPECT_EQ(name.engine, "/a, b/engine");
  EXPECT_EQ(name.nodes, 5);
  ASSERT_EQ(name.options.size(), 2u);
  EXPECT_EQ(name.options[0].second, "/x,y");
  EXPECT_EQ(name.options[1].second, "8");
}

TEST(PlayerNames, HaveWordsForTheCommandLineOfAProgram) {
  const PlayerName name = read_player_name("uci:/a/engine,args=--weights=net,2.pb  -t 2,nodes=5");
  EXPECT_EQ(name.engine, "/a/engine");
  EXPECT_EQ(name.arguments, (std::vector<std::string>{"--weights=net,2.pb", "-t", "2"}));
  EXPECT_EQ(name.nodes, 5);
}

std::string complaint_about(std::string_view text) {
  try {
    read_player_name(text);
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "";
}

TEST(PlayerNames, AreRefusedWithWhatCouldBeMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"minmax", "did you mean minimax?"},
      {"Stockfihs", "did you mean stockfish?"},
      {"", "players are: random, greedy"},
      {"/usr/games/stockfish", "did you mean uci:/usr/games/stockfish?"},
      {"uci:", "it names no program"},
      {"uci:,nodes=4", "it names no program"},
      {"random:3", "random has no settings"},
      {"minimax:3", "write minimax:depth=3"},
      {"minimax:depth=7", "not a whole number from 1 to 6"},
      {"minimax:nodes=7", "minimax has a depth"},
      {"stockfish:strong", "not a whole number from 1 to 10000"},
      {"stockfish:", "not a whole number"},
      {"stockfish:nodes=0", "not a whole number from 1"},
      {"stockfish:nodes=1e3", "not a whole number from 1"},
      {"stockfish:node=5", "did you mean nodes=?"},
      {"stockfish:nodes=99999999999999999999", "not a whole number"},
      {"uci:/x,elo=-5", "write elo=1500"},
      {"uci:/x,option.=3", "an engine has no"},
      {"stockfish:args=-x", "an engine has no"},
      {"uci:/x,1500=3", "an engine has no"},
      {"uci:/x,option.A=3\nquit", "a setting is one line"},
  };
  for (const auto& [text, words] : cases)
    EXPECT_NE(complaint_about(text).find(words), std::string::npos) << text << ": " << complaint_about(text);
}

TEST(PlayerNames, CannotSteerTheTerminal) {
  EXPECT_EQ(complaint_about("\x1b[2Jrandom").find('\x1b'), std::string::npos);
  EXPECT_EQ(complaint_about("stockfish:\x1b[2J=3").find('\x1b'), std::string::npos);
}

std::string failure_of(const std::string& text) {
  try {
    make_player(text);
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "";
}

TEST(Players, AreNotMadeOfWhatIsNoProgram) {
  const TempDir dir;
  std::ofstream(dir / "notes.txt") << "hello";
  EXPECT_NE(failure_of("uci:" + (dir / "none").string()).find("there is no such file"), std::string::npos);
  EXPECT_NE(failure_of("uci:" + dir.path().string()).find("it is no file"), std::string::npos);
  EXPECT_NE(failure_of("uci:" + (dir / "notes.txt").string()).find("chmod +x"), std::string::npos);
  EXPECT_NE(failure_of("uci:no-such-engine-anywhere").find("PATH"), std::string::npos);
  EXPECT_NE(failure_of("uci:" + std::string(300, 'a')).find("PATH"), std::string::npos) << "longer than a name may be";
  EXPECT_NE(failure_of("uci:~/engine").find("write $HOME"), std::string::npos);
}

TEST(Players, AreSpelledInTheHelpAsTheyAreRead) {
  for (const char* const spelling : {"random", "greedy", "minimax", "minimax:depth=3", "stockfish", "stockfish:1500",
                                     "stockfish:nodes=1000", "uci:/path/to/engine", "uci:/path,option.Hash=64"}) {
    EXPECT_NO_THROW(read_player_name(spelling)) << spelling;
    EXPECT_NE(players_help().find(spelling), std::string::npos) << spelling;
  }
}

}  // namespace
}  // namespace tandem::chess
