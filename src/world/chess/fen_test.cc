// FEN: what is read, what is refused and by which rule, what is written.
#include "world/chess/fen.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace tandem::chess {
namespace {

std::string complaint_about(std::string_view fen) {
  const FenReading reading = read_fen(fen);
  EXPECT_EQ(reading.good(), reading.complaint().empty());
  return reading.complaint();
}

std::string rules_broken(std::string_view fen) {
  std::string words;
  for (const BrokenRule& rule : read_fen(fen).broken) (words += words.empty() ? "" : " ") += word_of(rule.rule);
  return words;
}

TEST(Fen, IsWrittenAsItWasRead) {
  for (const std::string_view fen :
       {kStartFen, std::string_view("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R b Kq - 13 42"),
        std::string_view("8/8/1k6/8/2pP4/8/5K2/8 b - d3 0 1"), std::string_view("7k/8/8/8/8/8/8/K7 w - - 149 65535")})
    EXPECT_EQ(fen_of(position_of_fen(fen)), fen);
}

TEST(Fen, ReadsWhatOtherProgramsLeaveOut) {
  EXPECT_EQ(fen_of(position_of_fen("7k/8/8/8/8/8/8/K7")), "7k/8/8/8/8/8/8/K7 w - - 0 1");
  EXPECT_EQ(fen_of(position_of_fen("  7k/8/8/8/8/8/8/K7\tb  - \n")), "7k/8/8/8/8/8/8/K7 b - - 0 1");
  EXPECT_EQ(fen_of(position_of_fen("7k/8/8/8/8/8/8/K7 w - - 0 0")), "7k/8/8/8/8/8/8/K7 w - - 0 1");
  EXPECT_EQ(fen_of(position_of_fen("r3k2r/8/8/8/8/8/8/R3K2R w HAha - 0 1")), "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1");
  EXPECT_EQ(fen_of(position_of_fen("6Qk/8/8/8/8/8/8/K6Q~ b - - 0 1")), "6Qk/8/8/8/8/8/8/K6Q b - - 0 1");
  EXPECT_EQ(fen_of(position_of_fen("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1")),
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")
      << "nobody can capture";
}

TEST(Fen, SaysWhatIsWrongWithTheText) {
  EXPECT_EQ(complaint_about(""), "it is empty");
  EXPECT_EQ(complaint_about("8/8/8/8/8/8/8 w - - 0 1"), "the board has 7 ranks instead of 8, divided by /");
  EXPECT_EQ(complaint_about("8/8/8/8/8/8/8/8/8 w - - 0 1"), "the board has more than 8 ranks");
  EXPECT_EQ(complaint_about("8/8/8/7/8/8/8/8 w - - 0 1"), "rank 5 has 7 squares instead of 8");
  EXPECT_EQ(complaint_about("8/8/8/pppppppppp/8/8/8/8 w"), "rank 5 has more than 8 squares");
  EXPECT_EQ(complaint_about("8/8/8/44/8/8/8/8 w"), "rank 5 has two numbers in a row");
  EXPECT_EQ(complaint_about("8/8/8/8/8/8/8/6K w"), "rank 1 has 7 squares instead of 8");
  EXPECT_EQ(complaint_about("8/8/8/3x4/8/8/8/8 w"), "\"x\" is no piece: PNBRQK are White's, pnbrqk Black's");
  EXPECT_EQ(complaint_about("8/8/8/8~/8/8/8/8 w"), "rank 5 has a ~ that follows no piece");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 white"), "\"white\" is no side to move: it is w or b");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 w Kx"), "\"x\" is no castling right: the field is - or some of KQkq");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 w - e9"), "\"e9\" is no en-passant square: it is - or a square as e3");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 w - - -1"), "\"-1\" is no half-move clock: a whole number up to 65535");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 w - - 0 70000"),
            "\"70000\" is no move number: a whole number up to 65535");
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K7 w - - 0 1 more"), "it has more than six fields");
  EXPECT_EQ(complaint_about(std::string(1000, 'k')), "it has 1000 characters, a FEN at most 256");
}

TEST(Fen, NamesTheRuleThatAnImpossiblePositionBreaks) {
  EXPECT_EQ(rules_broken("8/8/8/8/8/8/8/8 w - - 0 1"), "empty no-white-king no-black-king");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/8/8/8 w - - 0 1"), "no-white-king");
  EXPECT_EQ(rules_broken("8/8/8/8/8/8/8/K7 w - - 0 1"), "no-black-king");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/8/8/K1K5 w - - 0 1"), "too-many-kings");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/P7/PPPPPPPP/K7 w - - 0 1"), "too-many-white-pawns");
  EXPECT_EQ(rules_broken("7k/pppppppp/p7/8/8/8/8/K7 w - - 0 1"), "too-many-black-pawns");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/N7/NNNNNNNN/KNNNNNNN w - - 0 1"), "too-many-white-pieces");
  EXPECT_EQ(rules_broken("P6k/8/8/8/8/8/8/K7 w - - 0 1"), "pawns-on-backrank");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/8/8/K7 w K - 0 1"), "bad-castling-rights");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/8/8/K7 w - e6 0 1"), "invalid-ep-square");
  EXPECT_EQ(rules_broken("7k/8/8/8/8/8/8/K6R w - - 0 1"), "opposite-check");
  EXPECT_EQ(rules_broken("3k4/8/8/8/8/2n5/8/KQ1r1r2 w - - 0 1"), "");
  EXPECT_EQ(rules_broken("K2r4/8/8/3b4/8/8/8/r6k w - - 0 1"), "too-many-checkers impossible-check");
  EXPECT_EQ(rules_broken("r6k/8/8/K7/8/8/8/r7 w - - 0 1"), "impossible-check") << "from both sides on one line";
}

TEST(Fen, SaysInWordsWhatIsImpossible) {
  EXPECT_EQ(complaint_about("7k/8/8/8/8/8/8/K6R w - - 0 1"), "White is to move, but Black's king is in check");
  EXPECT_EQ(complaint_about("4k3/8/8/8/8/8/8/4K3 w K - 0 1"), "castling right K, but White's rook is not on h1");
  EXPECT_EQ(complaint_about("r2k3r/8/8/8/8/8/8/4K3 b q - 0 1"), "castling right q, but Black's king is not on e8");
  EXPECT_EQ(complaint_about("1r2k3/8/8/8/8/8/8/4K3 b b - 0 1"), "castling rights of Chess960, which is another game");
  EXPECT_EQ(complaint_about("4k3/8/8/8/8/8/8/4K3 w - e3 0 1"),
            "en-passant square e3, but with White to move it is on rank 6");
  EXPECT_EQ(complaint_about("4k3/8/8/8/8/8/8/4K3 w - d6 0 1"),
            "en-passant square d6, but no black pawn on d5 has just made two steps");
  EXPECT_EQ(complaint_about("4k3/3p4/8/3pP3/8/8/8/4K3 w - d6 0 1"), "en-passant square d6, but d7 is not empty");
  EXPECT_EQ(complaint_about("8/8/8/8/8/8/8/K7 w - - 0 1"), "Black has no king");
}

TEST(Fen, AsAnErrorSaysWhatWhyAndWhatToDo) {
  try {
    position_of_fen("7k/8/8/8/8/8/8/K6R w - - 0 1");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "this position is impossible: \"7k/8/8/8/8/8/8/K6R w - - 0 1\"");
    EXPECT_EQ(error.why(), "White is to move, but Black's king is in check");
    EXPECT_NE(error.todo().find(kStartFen), std::string::npos);
  }
  try {
    position_of_fen("not\x1b a fen");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "this is no FEN: \"not? a fen\"");
  }
}

TEST(SquareNames, RunFromA1ToH8) {
  EXPECT_EQ(square_name(0), "a1");
  EXPECT_EQ(square_name(7), "h1");
  EXPECT_EQ(square_name(28), "e4");
  EXPECT_EQ(square_name(63), "h8");
}

}  // namespace
}  // namespace tandem::chess
