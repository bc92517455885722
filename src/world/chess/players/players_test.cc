#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "world/chess/fen.h"
#include "world/chess/notation.h"
#include "world/chess/players/builtin_players.h"
#include "world/chess/players/evaluation.h"
#include "world/chess/players/random_opening.h"
#include "world/chess/players/search.h"

namespace tandem::chess {
namespace {

Game game_of(std::string_view fen) { return Game(position_of_fen(fen)); }

std::string move_of(Player& player, std::string_view fen, uint64_t seed = 1) {
  player.begin_game(seed);
  return uci_of(player.think(game_of(fen), {}).move);
}

// The moves that a player chooses among, over many seeds.
std::set<std::string> choices_of(Player& player, std::string_view fen, int seeds = 300) {
  std::set<std::string> found;
  for (int seed = 0; seed < seeds; ++seed) found.insert(move_of(player, fen, static_cast<uint64_t>(seed)));
  return found;
}

// Middlegames, endgames, mates and stalemates in reach, promotions, en passant, checks: what a search can get wrong.
const std::vector<std::string>& positions() {
  static const std::vector<std::string> kPositions = {
      std::string(kStartFen),
      "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
      "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
      "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
      "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
      "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10",
      "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",                          // mate on d8
      "7k/8/6QK/8/8/8/8/8 w - - 0 1",                                   // many mates, many stalemates
      "k7/2Q5/8/8/8/8/8/7K b - - 0 1",                                  // stalemate is there
      "8/8/8/8/8/5k2/4p3/4K3 w - - 0 1",                                // one move, or stalemate
      "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3",  // mated
      "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
      "4k3/P7/8/8/8/8/7p/4K3 b - - 0 1",
      "8/8/4k3/8/8/3QK3/8/8 w - - 99 80",  // the move rule is one move away
      "8/8/4k3/8/8/4K3/8/6N1 w - - 0 1",   // dead
  };
  return kPositions;
}

// Minimax as the textbook has it: no cut-offs, every game played by Game and judged by its own rules.
int plain_value(Game& game, int depth, int ply) {
  const GameResult result = game.result(DrawRules::at_first_claim());
  if (result.over()) return result.winner ? ply - kMateScore : 0;
  if (depth == 0) return evaluate(game.position());
  MoveList list;
  legal_moves(game.position(), list);
  int best = -kMateScore - 1;
  for (const Move move : list) {
    game.play(move);
    best = std::max(best, -plain_value(game, depth - 1, ply + 1));
    game.undo();
  }
  return best;
}

std::set<std::string> plain_best(Game game, int depth) {
  std::map<int, std::set<std::string>> by_value;
  MoveList list;
  legal_moves(game.position(), list);
  for (const Move move : list) {
    game.play(move);
    by_value[-plain_value(game, depth - 1, 1)].insert(uci_of(move));
    game.undo();
  }
  return by_value.empty() ? std::set<std::string>() : by_value.rbegin()->second;
}

TEST(ChessEvaluation, IsTheSameWithColoursExchanged) {
  for (const std::string& fen : positions()) {
    Position turned = position_of_fen(fen), original = turned;
    turned.white = __builtin_bswap64(original.black());
    for (Bitboard Position::*board :
         {&Position::pawns, &Position::knights, &Position::diagonal, &Position::straight, &Position::kings})
      turned.*board = __builtin_bswap64(original.*board);
    turned.side_to_move = other(original.side_to_move);
    EXPECT_EQ(evaluate(turned), evaluate(original)) << fen;
    original.side_to_move = other(original.side_to_move);
    EXPECT_EQ(evaluate(turned), -evaluate(original)) << fen;
  }
}

TEST(ChessEvaluation, APawnIsWorthMoreTheNearerItIsToItsPromotion) {
  int before = -1'000'000;
  for (const char* const fen :
       {"k7/8/8/8/8/8/4P3/K7 w - - 0 1", "k7/8/8/8/4P3/8/8/K7 w - - 0 1", "k7/8/8/4P3/8/8/8/K7 w - - 0 1",
        "k7/8/4P3/8/8/8/8/K7 w - - 0 1", "k7/4P3/8/8/8/8/8/K7 w - - 0 1"}) {
    const int now = evaluate(position_of_fen(fen));
    EXPECT_GT(now, before) << fen;
    before = now;
  }
  EXPECT_GT(evaluate(position_of_fen("k7/8/8/8/8/8/4p3/K7 b - - 0 1")),
            evaluate(position_of_fen("k7/4p3/8/8/8/8/8/K7 b - - 0 1")) + 30);
}

std::set<std::string> best_of(const Game& game, int depth) {
  std::map<int, std::set<std::string>> by_value;
  for (const RootMove& root : GameSearch(game, Leaf::kAsItStands).moves_at(depth))
    by_value[root.score].insert(uci_of(root.move));
  return by_value.empty() ? std::set<std::string>() : by_value.rbegin()->second;
}

TEST(ChessMinimax, ChoosesAmongTheMovesThatATextbookMinimaxFinds) {
  for (const int depth : {1, 2, 3}) {
    MinimaxPlayer player(depth);
    for (const std::string& fen : positions()) {
      if (depth == 3 && count_legal_moves(position_of_fen(fen)) > 20) continue;
      const std::set<std::string> best = plain_best(game_of(fen), depth);
      EXPECT_EQ(best_of(game_of(fen), depth), best) << fen << " to depth " << depth;
      for (uint64_t seed = 0; seed < 5 && !best.empty(); ++seed)
        EXPECT_TRUE(best.contains(move_of(player, fen, seed))) << fen << " to depth " << depth;
    }
  }
}

TEST(ChessMinimax, ItsScoreIsTheTextbooksScore) {
  for (const std::string& fen : positions()) {
    Game game = game_of(fen);
    EXPECT_EQ(GameSearch(game, Leaf::kAsItStands).value_at(2), plain_value(game, 2, 0)) << fen;
  }
}

TEST(ChessMinimax, MatesWhereItCanAndSaysInHowMany) {
  MinimaxPlayer player;
  player.begin_game(1);
  const Thought thought = player.think(game_of("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"), {});
  EXPECT_EQ(uci_of(thought.move), "d1d8");
  EXPECT_EQ(thought.score, (Score{.mate_in = 1}));
  MinimaxPlayer deep(3);
  deep.begin_game(1);
  EXPECT_EQ(deep.think(game_of("7k/8/5K2/8/8/8/8/6R1 w - - 0 1"), {}).score, (Score{.mate_in = 2}));
  // Black may move, and is mated whatever it does.
  EXPECT_EQ(player.think(game_of("7k/R7/6K1/8/8/8/8/8 b - - 0 1"), {}).score, (Score{.mate_in = -1}));
}

TEST(ChessMinimax, DoesNotTakeWhatIsDefended) {
  MinimaxPlayer player;
  for (int seed = 0; seed < 20; ++seed)
    EXPECT_NE(move_of(player, "4k3/2p5/3p4/8/8/3Q4/8/4K3 w - - 0 1", static_cast<uint64_t>(seed)), "d3d6");
  EXPECT_EQ(move_of(player, "4k3/8/3p4/8/8/3Q4/8/4K3 w - - 0 1"), "d3d6") << "and takes what is not";
}

TEST(ChessMinimax, AvoidsARepetitionThatWouldThrowAWinAway) {
  // White is a queen up, and Qa2+ would bring the position of the beginning for the third time.
  Game game = game_of("6k1/8/8/8/8/8/Q7/K7 b - - 0 1");
  for (const char* const move : {"g8h8", "a2b2", "h8g8", "b2a2", "g8h8", "a2b2", "h8g8"})
    game.play(read_uci(game.position(), move).move);
  Game repeated = game;
  repeated.play(read_uci(game.position(), "b2a2").move);
  ASSERT_EQ(repeated.result(DrawRules::at_first_claim()).end, GameEnd::kRepetition);
  MinimaxPlayer player;
  for (int seed = 0; seed < 50; ++seed) {
    player.begin_game(static_cast<uint64_t>(seed));
    Game next = game;
    next.play(player.think(game, {}).move);
    EXPECT_FALSE(next.result(DrawRules::at_first_claim()).over());
  }
}

TEST(ChessMinimax, AnswersAtOnceWhenItIsStopped) {
  std::stop_source stop;
  stop.request_stop();
  MinimaxPlayer player(MinimaxPlayer::kDeepest);
  player.begin_game(1);
  const Thought thought = player.think(game_of(positions()[1]), {.stop = stop.get_token()});
  EXPECT_TRUE(is_legal(position_of_fen(positions()[1]), thought.move));
  EXPECT_LT(thought.nodes, 10'000);
}

TEST(ChessMinimax, KeepsALimitOfNodesWhereItWasMadeTo) {
  MinimaxPlayer limited(MinimaxPlayer::kDeepest, MinimaxPlayer::NodeLimit::kKept);
  limited.begin_game(1);
  for (const int64_t nodes : {1, 1000, 20'000}) {
    int64_t reported = 0;
    const Thought thought =
        limited.think(Game(), {.nodes = nodes, .report = [&](const Thought& t) { reported = t.nodes; }});
    EXPECT_TRUE(is_legal(start_position(), thought.move));
    EXPECT_LE(thought.nodes, nodes + 1024);
    EXPECT_LE(reported, nodes + 1024);
  }
  EXPECT_EQ(limited.think(Game(), {.nodes = 1'000'000, .depth = 2}).depth, 2) << "the first limit counts";
}

TEST(ChessMinimax, IsAsStrongInEveryMatchWhateverItsEnginesMayLookAt) {
  MinimaxPlayer player(3), limited(3, MinimaxPlayer::NodeLimit::kKept);
  const Game game = game_of("r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10");
  for (uint64_t seed = 0; seed < 5; ++seed) {
    player.begin_game(seed);
    limited.begin_game(seed);
    const Thought free = player.think(game, {}), asked = player.think(game, {.nodes = 1});
    EXPECT_EQ(asked.move, free.move);
    EXPECT_EQ(asked.nodes, free.nodes);
    const Thought far = limited.think(game, {.nodes = 1'000'000'000});
    EXPECT_EQ(far.move, free.move);
    EXPECT_EQ(far.score, free.score);
    EXPECT_LT(limited.think(game, {.nodes = 1}).depth, 3);
  }
}

TEST(ChessGreedy, TakesTheMostValuablePieceWhateverDefendsIt) {
  GreedyPlayer player;
  // A queen behind a pawn, a rook that nobody defends.
  EXPECT_EQ(choices_of(player, "3qk3/8/8/8/8/r2R4/8/3QK3 w - - 0 1", 20), (std::set<std::string>{"d3d8"}));
  EXPECT_EQ(choices_of(player, "4k3/1P6/8/8/8/8/r7/R3K3 w - - 0 1", 20), (std::set<std::string>{"b7b8q"}))
      << "800 of a promotion against a rook's 500";
}

TEST(ChessGreedy, CountsAPawnThatIsTakenEnPassant) {
  GreedyPlayer player;
  EXPECT_EQ(choices_of(player, "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", 20), (std::set<std::string>{"e5d6"}));
}

TEST(ChessGreedy, DrawsAmongEqualCapturesAndAmongAllMovesWhereThereIsNone) {
  GreedyPlayer player;
  EXPECT_EQ(choices_of(player, "4k3/8/8/2r1r3/3P4/8/8/7K w - - 0 1"), (std::set<std::string>{"d4c5", "d4e5"}));
  EXPECT_EQ(choices_of(player, kStartFen).size(), 20u);
}

TEST(ChessRandom, DrawsEveryMoveEquallyOften) {
  RandomPlayer player;
  std::map<std::string, int> seen;
  constexpr int kDraws = 20'000;
  for (int seed = 0; seed < kDraws; ++seed) ++seen[move_of(player, kStartFen, static_cast<uint64_t>(seed))];
  ASSERT_EQ(seen.size(), 20u);
  double chi = 0;
  for (const auto& [move, count] : seen) chi += (count - kDraws / 20.0) * (count - kDraws / 20.0) / (kDraws / 20.0);
  EXPECT_LT(chi, 43.8) << "one in a thousand, 19 degrees of freedom";
}

TEST(ChessPlayers, ASeedGivesTheSameGameAndMovesTakenBackTheSameMoves) {
  RandomPlayer player;
  const auto play = [&player](uint64_t seed) {
    Game game;
    player.begin_game(seed);
    for (int ply = 0; ply < 30; ++ply) game.play(player.think(game, {}).move);
    return game;
  };
  Game game = play(7);
  const std::vector<Move> moves(game.moves().begin(), game.moves().end());
  EXPECT_EQ(fen_of(play(7).position()), fen_of(game.position()));
  EXPECT_NE(fen_of(play(8).position()), fen_of(game.position()));
  player.begin_game(7);
  game.undo(11);
  while (game.moves().size() < 30) game.play(player.think(game, {}).move);
  EXPECT_TRUE(std::ranges::equal(game.moves(), moves));
}

TEST(ChessOpenings, AreFairShortAndTheSameForASeed) {
  std::set<std::string> seen;
  for (int64_t number = 0; number < 40; ++number) {
    const Game opening = random_opening(5, number);
    EXPECT_EQ(opening.moves().size(), static_cast<size_t>(kOpeningPlies));
    EXPECT_FALSE(opening.result().over());
    EXPECT_FALSE(in_check(opening.position()));
    EXPECT_LE(std::abs(GameSearch(opening, Leaf::kSettled).value_at(2)), kBalance);
    EXPECT_EQ(fen_of(random_opening(5, number).position()), fen_of(opening.position()));
    seen.insert(fen_of(opening.position()));
  }
  EXPECT_GE(seen.size(), 39u);
  EXPECT_NE(fen_of(random_opening(6, 0).position()), fen_of(random_opening(5, 0).position()));
  EXPECT_EQ(random_opening(5, 0, 3).moves().size(), 3u);
  EXPECT_TRUE(random_opening(5, 0, 0).moves().empty());
}

// What random play alone would give is often not fair, so that the rule is seen to do something.
TEST(ChessOpenings, TheRuleRefusesMuchOfWhatChanceAloneWouldGive) {
  int unfair = 0;
  RandomPlayer player;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Game game;
    player.begin_game(seed);
    for (int ply = 0; ply < kOpeningPlies && !game.result().over(); ++ply) game.play(player.think(game, {}).move);
    unfair += std::abs(GameSearch(game, Leaf::kSettled).value_at(2)) > kBalance;
  }
  EXPECT_GT(unfair, 15);
}

TEST(ChessSearch, SettledLeavesSeeWhatHangs) {
  // White's queen takes a pawn that a pawn defends: at depth 1 that looks like a pawn won.
  const Game game = game_of("4k3/2p5/3p4/8/8/3Q4/8/4K3 w - - 0 1");
  const auto score_of = [&game](Leaf leaf) {
    GameSearch search(game, leaf);
    for (const RootMove& root : search.moves_at(1))
      if (uci_of(root.move) == "d3d6") return root.score;
    return 0;
  };
  EXPECT_GT(score_of(Leaf::kAsItStands), 600);
  EXPECT_LT(score_of(Leaf::kSettled), 0);
}

}  // namespace
}  // namespace tandem::chess
