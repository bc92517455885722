// When a game ends, by which rule, and what may be claimed.
#include "world/chess/game.h"

#include <gtest/gtest.h>

#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

void play(Game& game, std::initializer_list<const char*> moves) {
  for (const char* text : moves) {
    const MoveReading reading = read_move(game.position(), text);
    ASSERT_TRUE(reading.good()) << text << ": " << reading.why;
    game.play(reading.move);
  }
}
Game game_of(std::string_view fen) { return Game(position_of_fen(fen)); }
GameEnd end_of(std::string_view fen) { return game_of(fen).result().end; }
void repeat(Game& game, int times) {  // knights go out and back
  for (int i = 0; i < times; ++i) play(game, {"g1f3", "g8f6", "f3g1", "f6g8"});
}

TEST(GameResults, MateAndStalemate) {
  Game game;
  play(game, {"f3", "e5", "g4"});
  EXPECT_FALSE(game.result().over());
  EXPECT_EQ(game.result().text(), "*");
  play(game, {"Qh4"});
  EXPECT_EQ(game.result(), (GameResult{GameEnd::kCheckmate, Side::kBlack}));
  EXPECT_EQ(game.result().text(), "0-1");
  EXPECT_EQ(game_of("R5k1/5ppp/8/8/8/8/8/K7 b - - 0 1").result().text(), "1-0");
  const GameResult stalemate = game_of("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1").result();
  EXPECT_EQ(stalemate.end, GameEnd::kStalemate);
  EXPECT_FALSE(stalemate.winner);
  EXPECT_EQ(stalemate.text(), "1/2-1/2");
}

TEST(GameResults, DeadPositions) {
  for (const char* fen : {"7k/8/8/8/8/8/8/K7 w - - 0 1", "7k/8/8/8/8/8/8/KN6 w - - 0 1", "6bk/8/8/8/8/8/8/K7 w - - 0 1",
                          "7k/8/8/8/8/8/8/KB1b4 b - - 0 1", "b6k/1b6/8/8/8/8/6B1/K4B1B b - - 0 1"})
    EXPECT_EQ(end_of(fen), GameEnd::kDeadPosition) << fen;
  for (const char* fen :
       {"7k/8/8/8/8/8/8/KNN5 w - - 0 1", "7k/8/8/8/8/8/8/KN3n2 w - - 0 1", "7k/8/8/8/8/8/8/KBb5 w - - 0 1",
        "7k/8/8/8/8/8/8/KBN5 w - - 0 1", "7k/p7/8/8/8/8/8/K7 w - - 0 1", "6rk/8/8/8/8/8/8/K7 w - - 0 1"})
    EXPECT_EQ(end_of(fen), GameEnd::kNone) << fen;
}

TEST(GameResults, ASideThatCannotMateMayStillLose) {
  const Position p = position_of_fen("7k/8/8/8/8/8/q7/1KN5 w - - 0 1");
  EXPECT_FALSE(has_mating_material(p, Side::kWhite)) << "a knight alone against a queen";
  EXPECT_TRUE(has_mating_material(p, Side::kBlack));
  EXPECT_TRUE(has_mating_material(position_of_fen("7k/7p/8/8/8/8/8/1KN5 w - - 0 1"), Side::kWhite))
      << "the pawn may shut its king in";
}

TEST(GameResults, RepetitionByRule) {
  Game game;
  repeat(game, 1);
  EXPECT_EQ(game.repetitions(), 2);
  EXPECT_FALSE(game.can_claim_threefold_repetition());
  play(game, {"g1f3", "g8f6", "f3g1"});
  EXPECT_TRUE(game.can_claim_threefold_repetition()) << "f6g8 would bring it about";
  EXPECT_FALSE(game.result(DrawRules::at_first_claim()).over());
  play(game, {"f6g8"});
  EXPECT_TRUE(game.can_claim_threefold_repetition());
  EXPECT_TRUE(game.can_claim_draw());
  EXPECT_EQ(game.result(DrawRules::at_first_claim()).end, GameEnd::kRepetition);
  EXPECT_FALSE(game.result().over()) << "nobody claims";
  repeat(game, 2);
  EXPECT_EQ(game.repetitions(), 5);
  EXPECT_EQ(game.result().end, GameEnd::kRepetition);
}

TEST(GameResults, APositionWithOtherRightsIsAnother) {
  Game game = game_of("4k3/8/8/8/8/8/8/4K2R w K - 0 1");
  play(game, {"h1h2", "e8d8", "h2h1", "d8e8"});
  EXPECT_EQ(game.repetitions(), 1) << "the right to castle is gone";
  Game captures = game_of("4k3/3p4/8/4P3/8/8/8/4K3 b - - 0 1");
  play(captures, {"d5", "Ke2", "Ke7", "Ke1", "Ke8", "Ke2", "Ke7", "Ke1", "Ke8"});
  EXPECT_EQ(captures.repetitions(), 2) << "at first a pawn could be captured en passant";
}

TEST(GameResults, MoveRuleByRule) {
  Game game = game_of("7k/8/8/8/8/8/R7/K7 w - - 98 100");
  EXPECT_FALSE(game.can_claim_fifty_moves());
  play(game, {"a2b2"});
  EXPECT_TRUE(game.can_claim_fifty_moves()) << "any move would bring it about";
  EXPECT_FALSE(game.result(DrawRules::at_first_claim()).over());
  play(game, {"h8g8"});
  EXPECT_TRUE(game.can_claim_fifty_moves());
  EXPECT_EQ(game.result(DrawRules::at_first_claim()).end, GameEnd::kMoveRule);
  EXPECT_FALSE(game.result().over());
  EXPECT_FALSE(game_of("7k/8/8/8/8/8/R7/K7 w - - 149 100").result().over());
  EXPECT_EQ(end_of("7k/8/8/8/8/8/R7/K7 w - - 150 100"), GameEnd::kMoveRule);
  EXPECT_FALSE(game_of("7k/8/8/8/8/8/P7/K7 w - - 98 100").can_claim_fifty_moves());
  Game pawns = game_of("k7/8/1K6/8/8/8/8/1R6 b - - 99 100");
  EXPECT_TRUE(pawns.can_claim_fifty_moves());
}

TEST(GameResults, MateOnTheLastMoveWins) {
  Game game = game_of("6k1/5ppp/8/8/8/8/8/K3R3 w - - 149 100");
  play(game, {"e1e8"});
  EXPECT_EQ(game.position().halfmove_clock, 150);
  EXPECT_EQ(game.result(), (GameResult{GameEnd::kCheckmate, Side::kWhite}));
}

TEST(Games, RememberMovesAndTakeThemBack) {
  Game game;
  play(game, {"e4", "e5", "Nf3"});
  ASSERT_EQ(game.moves().size(), 3u);
  ASSERT_EQ(game.hashes().size(), 4u);
  const Position three = game.position();
  EXPECT_EQ(game.hashes()[3], three.hash);
  EXPECT_TRUE(game.undo(2));
  EXPECT_EQ(fen_of(game.position()), "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1");
  EXPECT_FALSE(game.undo(2));
  play(game, {"e5", "Nf3"});
  EXPECT_EQ(game.position(), three);
  EXPECT_TRUE(game.undo(3));
  EXPECT_EQ(game.position(), game.start());
}

}  // namespace
}  // namespace tandem::chess
