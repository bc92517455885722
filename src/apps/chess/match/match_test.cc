#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

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

// Plays the first legal move, after a while.
class Sloth : public Player {
 public:
  explicit Sloth(std::chrono::milliseconds pause) : pause_(pause) {}
  std::string name() const override { return "sloth"; }
  std::optional<std::chrono::milliseconds> move_time(const ThinkRequest&) const override {
    return std::chrono::milliseconds(1);
  }
  Thought think(const Game& game, const ThinkRequest& request) override {
    asked = request;
    const auto until = std::chrono::steady_clock::now() + pause_;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    MoveList list;
    legal_moves(game.position(), list);
    return {.move = list[0]};
  }
  ThinkRequest asked;

 private:
  void prepare_game(uint64_t, const std::stop_token&) override {}
  std::chrono::milliseconds pause_;
};

FinishedGame play_by_the_clock(const std::string& fen, const std::string& control, Player& white, Player& black) {
  MatchRules rules;
  rules.clock = read_time_control(control);
  rules.max_plies = 2;
  return play_game(Game(position_of_fen(fen)), white, black, 1, 1, rules, {});
}

TEST(Match, WhoseFlagFallsHasLost) {
  Sloth slow(kFlagMargin + std::chrono::milliseconds(5)), quick(std::chrono::milliseconds(0));
  const FinishedGame lost = play_by_the_clock(std::string(kStartFen), "0.001", slow, quick);
  EXPECT_EQ(lost.flag, Side::kWhite);
  EXPECT_EQ(lost.winner, Side::kBlack);
  EXPECT_EQ(lost.result_text(), "0-1");
  EXPECT_TRUE(lost.game.moves().empty()) << "the move came too late";
  EXPECT_FALSE(lost.fault || lost.broken_off);
  const PgnGame pgn = pgn_of_game(lost, "a", "b", {.event = "e", .date = "d", .time_control = "0.001"});
  EXPECT_EQ(pgn.tag("Termination"), "time forfeit");
  EXPECT_EQ(pgn.tag("TimeControl"), "0.001");
  EXPECT_EQ(pgn.preface, "White's flag fell");
  MatchReport report;
  report.add(lost);
  EXPECT_EQ(report.endings.at("time"), 1);
  EXPECT_TRUE(report.failures.empty()) << "a lost game, not an engine out of order";
}

TEST(Match, AFallenFlagIsADrawWhereTheOtherSideCanNotMate) {
  Sloth slow(kFlagMargin + std::chrono::milliseconds(5)), quick(std::chrono::milliseconds(0));
  const FinishedGame drawn = play_by_the_clock("4k3/8/8/8/8/8/P7/4K3 w - - 0 1", "0.001", slow, quick);
  EXPECT_EQ(drawn.flag, Side::kWhite);
  EXPECT_EQ(drawn.winner, std::nullopt);
  EXPECT_EQ(drawn.points(), 1);
  EXPECT_EQ(drawn.result_text(), "1/2-1/2");
}

TEST(Match, PlayersAreToldTheirClocks) {
  using std::chrono::milliseconds;
  Sloth white(milliseconds(10)), black(milliseconds(0));
  const FinishedGame played = play_by_the_clock(std::string(kStartFen), "2/3600+1", white, black);
  EXPECT_TRUE(played.too_long);
  ASSERT_TRUE(white.asked.clocks && black.asked.clocks);
  EXPECT_EQ(white.asked.clocks->white, milliseconds(3'600'000));
  EXPECT_EQ(white.asked.clocks->moves_to_go, 2);
  EXPECT_LE(black.asked.clocks->white, milliseconds(3'600'991));
  EXPECT_EQ(black.asked.clocks->black, milliseconds(3'600'000));
}

TEST(Match, MovesThatTakeLongerThanTheirTimeAreCounted) {
  MatchRules rules;
  rules.max_plies = 4;
  Sloth slow(std::chrono::milliseconds(60)), random(std::chrono::milliseconds(0));
  MatchReport report;
  report.first.name = "slow", report.second.name = "random";
  FinishedGame played = play_game(Game(), slow, random, 1, 1, rules, {});
  report.add(played);
  played.number = 1, played.first_is_white = false;  // as if the colours were exchanged
  report.add(played);
  EXPECT_EQ(report.first_times.moves, 4);
  EXPECT_EQ(report.first_times.overruns + report.second_times.overruns,
            2 * (played.times[0].overruns + played.times[1].overruns));
  EXPECT_EQ(played.times[0].overruns, 2);
  EXPECT_GE(played.times[0].mean_ms(), 60);
  EXPECT_NE(match_table(report).find(" ms a move, at most "), std::string::npos) << match_table(report);
  EXPECT_NE(match_table(report).find(" of 4 late"), std::string::npos) << match_table(report);
}

// Whoever runs already is waiting for the stop: without it the match would hang.
class WaitsForStop : public RandomPlayer {
 public:
  Thought think(const Game& game, const ThinkRequest& request) override {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait(lock, request.stop, [] { return false; });
    return RandomPlayer::think(game, request);
  }
};

TEST(Match, WithoutRoomForItsThreadsEndsAtOnceAndSaysWhy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the limit leaves";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
  GTEST_SKIP() << "sanitizers need more address space than the limit leaves";
#endif
#endif
  MatchPlan plan = plan_of(64, 64, 1);
  plan.make_players = [] { return MatchPlayers{std::make_unique<WaitsForStop>(), std::make_unique<WaitsForStop>()}; };
  // Stacks of a GiB each, and room for three of them.
  pthread_attr_t usual, large;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, size_t{1} << 30);
  pthread_setattr_default_np(&large);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlimit little{pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{7} << 29), before.rlim_max};
  setrlimit(RLIMIT_AS, &little);
  std::string said;
  try {
    MatchPlayers started = plan.make_players();
    const MatchRunner runner(std::move(plan), std::move(started));
  } catch (const IoError& error) {
    said = error.render();
  }
  setrlimit(RLIMIT_AS, &before);
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&large);
  EXPECT_NE(said.find("of 64 games at once could begin"), std::string::npos) << said;
  EXPECT_NE(said.find("--jobs"), std::string::npos) << said;
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
    MatchPgn pgn(PgnFile(dir / "games.pgn"), "greedy", "random",
                 {.event = "test", .date = "", .time_control = "60+0.6"});
    for (const int64_t number : {2, 0, 1, 5, 4}) pgn.add(games.at(number));
    pgn.add_waiting();
  }
  std::ifstream in(dir / "games.pgn");
  PgnReader reader(in);
  for (const int64_t number : {0, 1, 2, 4, 5}) {
    const auto read = reader.next();
    ASSERT_TRUE(read && !reader.fault()) << number;
    EXPECT_EQ(read->tag("Round"), std::to_string(number / 2 + 1) + "." + std::to_string(number % 2 + 1));
    EXPECT_EQ(read->tag("TimeControl"), "60+0.6");
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

// Of long games of which the first moves alone are wanted.
TEST(MatchOpenings, KeepNoMemoryForMovesThatWereCut) {
  const TempDir dir;
  constexpr int kGames = 40, kRounds = 500;
  {
    std::ofstream file(dir / "long.pgn");
    for (int game = 0; game < kGames; ++game) {
      for (int i = 0; i < kRounds; ++i) file << "Nf3 Nf6 Ng1 Ng8\n";
      file << "*\n\n";
    }
  }
  const size_t before = mallinfo2().uordblks;
  const Openings openings = Openings::of_file(dir / "long.pgn", 1, 4);
  const size_t after = mallinfo2().uordblks;
  ASSERT_EQ(openings.count(), kGames);
  EXPECT_EQ(openings.most_plies(), 4);
  EXPECT_LT(after - before, size_t{kGames} * kRounds * 4) << "not a byte for each of the half-moves that were cut";
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
