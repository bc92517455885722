#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "apps/chess/match/match_pgn.h"
#include "apps/chess/match/match_report.h"
#include "apps/chess/match/match_runner.h"
#include "base/temp_dir.h"
#include "world/chess/fen.h"
#include "world/chess/notation.h"
#include "world/chess/players/builtin_players.h"

namespace tandem::chess {
namespace {

MatchPlan plan_of(int64_t games, int jobs, uint64_t seed) {
  MatchPlan plan{.games = games, .jobs = jobs, .seed = seed, .openings = Openings::by_rule(seed, 6)};
  plan.make_players = [] { return MatchPlayers{std::make_unique<GreedyPlayer>(), std::make_unique<RandomPlayer>()}; };
  return plan;
}

std::map<int64_t, FinishedGame> play_all(MatchPlan plan) {
  MatchPlayers started = plan.make_players();
  MatchRunner runner(std::move(plan), std::move(started));
  std::map<int64_t, FinishedGame> games;
  for (bool over = false; !over;) {
    over = runner.over();
    if (!over) {
      pollfd wait{runner.ready_fd(), POLLIN, 0};
      poll(&wait, 1, -1);
    }
    for (FinishedGame& game : runner.take()) games.emplace(game.number, std::move(game));
  }
  return games;
}

std::vector<std::string> moves_of(const Game& game) {
  std::vector<std::string> moves;
  for (const Move move : game.moves()) moves.push_back(uci_of(move));
  return moves;
}

TEST(Match, APairHasOneOpeningAndColoursExchanged) {
  const auto games = play_all(plan_of(8, 2, 3));
  ASSERT_EQ(games.size(), 8u);
  for (int64_t pair = 0; pair < 4; ++pair) {
    const FinishedGame &first = games.at(2 * pair), &second = games.at(2 * pair + 1);
    EXPECT_TRUE(first.first_is_white);
    EXPECT_FALSE(second.first_is_white);
    const auto a = moves_of(first.game), b = moves_of(second.game);
    EXPECT_TRUE(std::equal(a.begin(), a.begin() + 6, b.begin()));
    EXPECT_NE(a, b);
  }
  EXPECT_NE(moves_of(games.at(0).game)[2] + moves_of(games.at(0).game)[3] + moves_of(games.at(0).game)[4],
            moves_of(games.at(2).game)[2] + moves_of(games.at(2).game)[3] + moves_of(games.at(2).game)[4]);
}

TEST(Match, ASeedGivesTheSameGamesForAnyNumberOfJobs) {
  const auto one = play_all(plan_of(12, 1, 9));
  for (const int jobs : {2, 5, 12}) {
    const auto several = play_all(plan_of(12, jobs, 9));
    ASSERT_EQ(several.size(), 12u);
    for (const auto& [number, game] : one) EXPECT_EQ(moves_of(several.at(number).game), moves_of(game.game)) << number;
  }
  EXPECT_NE(moves_of(play_all(plan_of(2, 1, 10)).at(0).game), moves_of(one.at(0).game));
}

TEST(Match, EveryGameEndsByTheRulesOrAtItsLongest) {
  MatchPlan plan = plan_of(20, 2, 4);
  plan.rules.max_plies = 120;
  std::set<std::string> endings;
  for (const auto& [number, played] : play_all(std::move(plan))) {
    const GameResult result = played.game.result(DrawRules::at_first_claim());
    EXPECT_EQ(played.result, result);
    EXPECT_EQ(played.too_long, !result.over());
    EXPECT_EQ(played.winner, result.winner);
    if (played.too_long) {
      EXPECT_EQ(played.game.moves().size(), 120u);
      EXPECT_EQ(played.points(), 1);
    }
    endings.insert(played.ending());
  }
  EXPECT_GE(endings.size(), 2u);
}

TEST(Match, BrokenOffGamesHaveNoResult) {
  MatchPlan plan = plan_of(200, 2, 4);
  MatchPlayers started = plan.make_players();
  MatchRunner runner(std::move(plan), std::move(started));
  std::vector<FinishedGame> games;
  while (games.empty()) {
    pollfd wait{runner.ready_fd(), POLLIN, 0};
    poll(&wait, 1, -1);
    games = runner.take();
  }
  runner.break_off();
  while (!runner.over()) {
    pollfd wait{runner.ready_fd(), POLLIN, 0};
    poll(&wait, 1, 1000);
  }
  for (FinishedGame& game : runner.take()) games.push_back(std::move(game));
  EXPECT_LT(games.size(), 200u);
  MatchReport report;
  for (const FinishedGame& game : games) {
    report.add(game);
    EXPECT_EQ(game.broken_off, game.result_text() == "*");
  }
  EXPECT_EQ(report.score.games(), std::ranges::count(games, false, &FinishedGame::broken_off));
}

FinishedGame game_with(int64_t number, std::optional<Side> winner, std::optional<Side> at_fault = {}) {
  FinishedGame game;
  game.number = number;
  game.first_is_white = number % 2 == 0;
  game.winner = winner;
  if (at_fault) game.fault = GameFault{*at_fault, PlayerFault::Kind::kCrashed, "it crashed", "signal 11"};
  return game;
}

TEST(Match, ThreeFailuresInARowOfOnePlayerStopIt) {
  FailureRule rule;
  const auto fails = [](int64_t number) {  // the second player, whatever its colour
    const Side side = number % 2 == 0 ? Side::kBlack : Side::kWhite;
    return game_with(number, other(side), side);
  };
  EXPECT_FALSE(rule.add(fails(0)));
  EXPECT_FALSE(rule.add(fails(1)));
  EXPECT_FALSE(rule.add(game_with(2, {}))) << "a game without a fault begins the count anew";
  EXPECT_FALSE(rule.add(fails(3)));
  EXPECT_FALSE(rule.add(fails(4)));
  EXPECT_TRUE(rule.add(fails(5)));
  EXPECT_FALSE(rule.first_failed());
}

TEST(MatchReport, CountsPairsInWhateverOrderGamesEnd) {
  MatchReport report;
  report.first = {"a", "A", {}}, report.second = {"b", "B", 1500};
  report.add(game_with(3, Side::kBlack));  // first wins
  report.add(game_with(0, Side::kWhite));  // first wins
  report.add(game_with(4, {}));            // half a pair
  report.add(game_with(1, Side::kWhite));  // first loses
  report.add(game_with(2, {}));
  EXPECT_EQ(report.score.wins, 2);
  EXPECT_EQ(report.score.draws, 2);
  EXPECT_EQ(report.score.losses, 1);
  EXPECT_EQ(report.score.pairs, (std::array<int64_t, 5>{0, 0, 1, 1, 0}));
  EXPECT_EQ(report.first_as_white[2], 1);
  EXPECT_EQ(report.first_as_white[1], 2);
}

TEST(MatchReport, SaysWhoIsTheAnchorAndThatThereIsNone) {
  MatchReport report;
  report.first = {"minimax", "minimax", {}}, report.second = {"stockfish:1500", "Stockfish 15.1, UCI_Elo 1500", 1500};
  for (int64_t number = 0; number < 40; ++number)
    report.add(game_with(number, number % 4 == 0 ? std::optional(Side::kWhite) : std::nullopt));
  const std::string table = match_table(report);
  EXPECT_NE(table.find("scale   minimax: 1589 ("), std::string::npos) << table;
  EXPECT_NE(table.find("where Stockfish 15.1, UCI_Elo 1500 is 1500"), std::string::npos);
  report.second.promised_elo = {};
  EXPECT_NE(match_table(report).find("no anchor"), std::string::npos);
  report.anchor = -300;
  EXPECT_NE(match_table(report).find("scale   minimax: -211 ("), std::string::npos) << match_table(report);
  EXPECT_NE(match_table(report).find("is -300 as --anchor has it"), std::string::npos);
}

TEST(MatchPgn, KeepsTheOrderOfTheGamesAndReadsBack) {
  const TempDir dir;
  auto games = play_all(plan_of(6, 3, 2));
  {
    MatchPgn pgn(PgnFile(dir / "games.pgn"), "greedy", "random", "test");
    for (const int64_t number : {2, 0, 1, 5, 4}) pgn.add(games.at(number));
    pgn.add_waiting();
  }
  std::ifstream in(dir / "games.pgn");
  PgnReader reader(in);
  for (const int64_t number : {0, 1, 2, 4, 5}) {
    const auto read = reader.next();
    ASSERT_TRUE(read && !reader.fault()) << number;
    EXPECT_EQ(read->tag("Round"), std::to_string(number / 2 + 1) + "." + std::to_string(number % 2 + 1));
    EXPECT_EQ(read->tag("White"), number % 2 == 0 ? "greedy" : "random");
    EXPECT_EQ(read->result, games.at(number).result_text());
    EXPECT_EQ(moves_of(read->game), moves_of(games.at(number).game));
  }
  EXPECT_FALSE(reader.next());
}

std::string refusal_of(const std::filesystem::path& file, std::optional<int> plies = {},
                       const DrawRules& rules = DrawRules::at_first_claim()) {
  try {
    Openings::of_file(file, 1, plies, rules);
  } catch (const ConfigError& error) {
    return error.render();
  }
  return "";
}

TEST(MatchOpenings, AreThePositionsOfAFileEachOnceInTheOrderOfTheSeed) {
  const TempDir dir;
  std::ofstream(dir / "book.epd") << "# two words of Latin\n\n"
                                  << "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - id \"one\";\r\n"
                                  << "rnbqkbnr/pp1ppppp/8/2p5/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2\n"
                                  << "rnbqkbnr/ppp1pppp/8/3p4/3P4/8/PPP1PPPP/RNBQKBNR w KQkq -";
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Openings openings = Openings::of_file(dir / "book.epd", seed, {});
    ASSERT_EQ(openings.count(), 3);
    std::set<std::string> once;
    std::string order;
    for (int64_t number = 0; number < 3; ++number) {
      once.insert(fen_of(openings.opening(number).position()));
      order += fen_of(openings.opening(number).position()) + "|";
      EXPECT_EQ(fen_of(openings.opening(number + 3).position()), fen_of(openings.opening(number).position()));
    }
    EXPECT_EQ(once.size(), 3u);
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), 4u);
}

TEST(MatchOpenings, MayBeTheFirstMovesOfGames) {
  const TempDir dir;
  std::ofstream(dir / "games.pgn") << "[Event \"a\"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n";
  EXPECT_NE(refusal_of(dir / "games.pgn").find("the game is over at its end"), std::string::npos);
  const Openings openings = Openings::of_file(dir / "games.pgn", 1, 2);
  EXPECT_EQ(moves_of(openings.opening(0)), (std::vector<std::string>{"f2f3", "e7e5"}));
  std::ofstream(dir / "OTHER.PGN") << "1. e4 e5 2. Nf3 *\n\n1. d4 *\n";
  EXPECT_EQ(Openings::of_file(dir / "OTHER.PGN", 1, {}).count(), 2) << "a name in capitals";
  EXPECT_EQ(Openings::of_file(dir / "OTHER.PGN", 1, {}).most_plies(), 3);
  EXPECT_EQ(Openings::of_file(dir / "OTHER.PGN", 1, 2).most_plies(), 2);
}

TEST(MatchOpenings, AreJudgedByTheRulesOfTheMatch) {
  const TempDir dir;
  std::ofstream(dir / "late.epd") << "7k/8/8/8/8/8/R7/K7 w - - 120 90\n";
  EXPECT_NE(refusal_of(dir / "late.epd").find("line 1"), std::string::npos) << "drawn by 50 moves before it begins";
  EXPECT_EQ(refusal_of(dir / "late.epd", {}, DrawRules::fide()), "");
}

TEST(MatchOpenings, PositionsHaveNoMovesToBeCut) {
  const TempDir dir;
  std::ofstream(dir / "book.epd") << "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 30\n";
  EXPECT_NE(refusal_of(dir / "book.epd", 4).find("holds positions"), std::string::npos);
  EXPECT_EQ(Openings::of_file(dir / "book.epd", 1, {}).most_plies(), 0);
  EXPECT_EQ(Openings::by_rule(1, 6).most_plies(), 6);
}

TEST(MatchOpenings, AreRefusedWithTheLineThatIsNone) {
  const TempDir dir;
  const auto file_with = [&dir](const std::string& name, const std::string& text) {
    std::ofstream(dir / name) << text;
    return dir / name;
  };
  const std::string good = "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq -\n";
  EXPECT_NE(refusal_of(dir / "none.epd").find("there is no such file"), std::string::npos);
  EXPECT_NE(refusal_of(dir.path()).find("can't be opened as a file"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("empty.epd", "# nothing\n")).find("no position and no game"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("bad.epd", good + "hello\n")).find("line 2"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("mate.epd", good + good + "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1\n")).find("line 3"),
            std::string::npos);
  EXPECT_NE(refusal_of(file_with("long.epd", good + std::string(9000, 'x') + "\n")).find("line 2"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("bad.pgn", "[Event \"a\"]\n\n1. e4 e5 2. Ke4 *\n")).find("Ke4"), std::string::npos);
}

}  // namespace
}  // namespace tandem::chess
