// PGN: written as the standard says, read from what people and programs write, faults with their place.
#include "world/chess/pgn.h"

#include <gtest/gtest.h>

#include <sstream>

#include "world/chess/fen.h"
#include "world/chess/notation.h"

namespace tandem::chess {
namespace {

PgnGame played(std::initializer_list<const char*> moves, const Position& start = start_position()) {
  PgnGame pgn;
  pgn.game = Game(start);
  for (const char* text : moves) {
    const MoveReading reading = read_san(pgn.game.position(), text);
    EXPECT_TRUE(reading.good()) << text << ": " << reading.why;
    pgn.game.play(reading.move);
  }
  return pgn;
}

std::string moves_of(const PgnGame& pgn) {
  std::string text;
  for (const Move move : pgn.game.moves()) (text += text.empty() ? "" : " ") += uci_of(move);
  return text;
}

struct ReadGames {
  std::vector<PgnGame> games;
  std::vector<std::string> faults;
};
ReadGames read_all(const std::string& text, const PgnLimits& limits = {}) {
  std::istringstream in(text);
  PgnReader reader(in, limits);
  ReadGames all;
  while (auto game = reader.next()) {
    if (reader.fault()) all.faults.push_back(reader.fault()->text());
    all.games.push_back(std::move(*game));
  }
  return all;
}

TEST(PgnWriting, TagsThenMoves) {
  PgnGame pgn = played({"f3", "e5", "g4", "Qh4"});
  pgn.set_tag("White", "A \"quoted\" \\ name");
  pgn.set_tag("Termination", "normal");
  pgn.result = "0-1";
  EXPECT_EQ(pgn_of(pgn),
            "[Event \"?\"]\n[Site \"?\"]\n[Date \"????.??.??\"]\n[Round \"?\"]\n"
            "[White \"A \\\"quoted\\\" \\\\ name\"]\n[Black \"?\"]\n[Result \"0-1\"]\n[Termination \"normal\"]\n\n"
            "1. f3 e5 2. g4 Qh4# 0-1\n\n");
}

TEST(PgnWriting, FromAPositionWithItsFenAndItsNumbers) {
  const std::string text = pgn_of(played({"Kg7", "Kb2", "Kg6"}, position_of_fen("7k/8/8/8/8/8/R7/K7 b - - 4 30")));
  EXPECT_NE(text.find("[SetUp \"1\"]\n[FEN \"7k/8/8/8/8/8/R7/K7 b - - 4 30\"]\n\n30... Kg7 31. Kb2 Kg6 *\n"),
            std::string::npos)
      << text;
}

TEST(PgnWriting, CommentsAreWordsAndNumbersFollowThem) {
  PgnGame pgn = played({"e4", "e5"});
  pgn.comments = {"[%eval 0.3] not } the end"};
  EXPECT_NE(pgn_of(pgn).find("1. e4 {[%eval 0.3] not ) the end} 1... e5 *\n"), std::string::npos) << pgn_of(pgn);
}

TEST(PgnWriting, AGameWithoutMovesMayHaveACommentToo) {
  PgnGame pgn;
  pgn.preface = "it crashed";
  EXPECT_NE(pgn_of(pgn).find("\n\n{it crashed} *\n"), std::string::npos) << pgn_of(pgn);
  EXPECT_EQ(read_all(pgn_of(pgn)).games.size(), 1u);
  EXPECT_TRUE(read_all(pgn_of(pgn)).faults.empty());
}

TEST(PgnWriting, LinesHaveAtMostEightyCharactersAndAreReadBack) {
  PgnGame pgn;
  for (int i = 0; i < 40; ++i)
    for (const char* text : {"Nf3", "Nf6", "Ng1", "Ng8"}) pgn.game.play(read_san(pgn.game.position(), text).move);
  pgn.comments = {std::string(300, 'x'), "a b c"};
  std::istringstream lines(pgn_of(pgn));
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.size() < 80 || line.find("xxx") != std::string::npos) << line;
  const ReadGames again = read_all(pgn_of(pgn));
  ASSERT_EQ(again.games.size(), 1u);
  EXPECT_EQ(moves_of(again.games[0]), moves_of(pgn));
}

TEST(PgnReading, PassesOverCommentsVariationsAndMarks) {
  const ReadGames read = read_all(
      "\xEF\xBB\xBF% a line for programs\n; a line for people\n[Event \"x\"]\n[White \"A \\\"b\\\" \\\\\"]\n\n"
      "1.e4 {a comment; with (this [and} e5 $1 (1... c5 {in it ) } (1... e6 2. d4) 2. Nf3) 2. Nf3! ; to the end } (\n"
      "2... Nc6!? 3 Bb5 a6 $14 $ 4...\n% 5. Nonsense\n4. B:nonsense");
  ASSERT_EQ(read.games.size(), 1u);
  EXPECT_EQ(moves_of(read.games[0]), "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6");
  EXPECT_EQ(read.games[0].tag("White"), "A \"b\" \\");
  EXPECT_EQ(read.faults, std::vector<std::string>{
                             "game 1, line 9: 4. B:nonsense: \"B:nonsense\" is no move in SAN (e4, Nf3, exd5, e8=Q, "
                             "O-O)"});
}

TEST(PgnReading, ManyGamesWithOrWithoutResults) {
  const ReadGames read = read_all(
      "[White \"one\"]\n[Result \"1-0\"]\n\n1. e4 1-0\n\n[White \"two\"]\n[Result \"0-1\"]\n1. d4\n\n  [White "
      "\"three\"]\n\n"
      "1/2-1/2 1. c4 * [White \"five\"]");
  ASSERT_EQ(read.games.size(), 5u);
  EXPECT_TRUE(read.faults.empty());
  const char* const results[] = {"1-0", "0-1", "1/2-1/2", "*", "*"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(read.games[i].result, results[i]) << i;
  EXPECT_EQ(moves_of(read.games[3]), "c2c4") << "a game needs no tags";
  EXPECT_EQ(read.games[4].tag("White"), "five");
}

TEST(PgnReading, QuotesInATagAreItsOwnUnlessTheyEndIt) {
  EXPECT_EQ(read_all("[Event \"a \"name\" of \\ theirs\" ]\n\n*").games.at(0).tag("Event"), "a \"name\" of \\ theirs");
  EXPECT_EQ(read_all("[Event \"ends in \\\"\"]\n\n*").games.at(0).tag("Event"), "ends in \"");
  EXPECT_EQ(read_all("[Event \"\"]\n\n*").games.at(0).tag("Event"), "");
  EXPECT_EQ(read_all("[Event \"a\rb\"]\r\n\r\n*").games.at(0).tag("Event"), "a b");
}

TEST(PgnReading, FromAPosition) {
  const ReadGames read = read_all("[SetUp \"1\"]\n[FEN \"7k/8/8/8/8/8/R7/K7 b - - 4 30\"]\n\n30... Kg7 *\n");
  ASSERT_EQ(read.games.size(), 1u);
  EXPECT_EQ(fen_of(read.games[0].game.position()), "8/6k1/8/8/8/8/R7/K7 w - - 5 31");
  EXPECT_TRUE(read.games[0].tags.empty()) << "the game knows where it begins";
}

TEST(PgnReading, FaultsNameGameLineMoveAndReasonAndTheNextGameIsRead) {
  const ReadGames read = read_all(
      "[White \"good\"]\n\n1. e4 *\n\n[White \"bad\"]\n\n1. e4 e5\n2. Nf3 Nc6 3. Bb6 a6 {no more of this} 0-1\n\n"
      "[FEN \"8/8/8/8/8/8/8/8 w - - 0 1\"]\n\n1. e4 *\n\n1. d4 *");
  ASSERT_EQ(read.games.size(), 4u);
  EXPECT_EQ(moves_of(read.games[1]), "e2e4 e7e5 g1f3 b8c6") << "what came before the fault";
  EXPECT_EQ(read.games[1].result, "0-1");
  EXPECT_EQ(moves_of(read.games[3]), "d2d4");
  EXPECT_EQ(read.faults, (std::vector<std::string>{
                             "game 2, line 8: 3. Bb6: no bishop can go to b6",
                             "game 3, line 10: its FEN: the board is empty; White has no king; Black has no king"}));
}

TEST(PgnReading, WhatDoesNotEndIsAFault) {
  EXPECT_EQ(read_all("1. e4 {never\nends").faults,
            std::vector<std::string>{"game 1, line 2: the comment that begins with { in line 1 does not end"});
  EXPECT_EQ(read_all("1. e4 (1. d4 (").faults,
            std::vector<std::string>{"game 1, line 1: the variation that begins with ( in line 1 does not end"});
  EXPECT_EQ(read_all("[White \"no end\n\n1. e4 *").faults,
            std::vector<std::string>{"game 1, line 1: a tag is not of the form [Name \"value\"]"});
  EXPECT_EQ(read_all("1. e4 ) *").faults, std::vector<std::string>{"game 1, line 1: a ) that belongs to nothing"});
  EXPECT_TRUE(read_all("").games.empty());
  EXPECT_TRUE(read_all(" \n\n ; nothing\n").games.empty());
}

TEST(PgnReading, HoldsItsLimits) {
  const PgnLimits limits{.longest_word = 10, .most_tags = 2, .most_moves = 3};
  EXPECT_EQ(read_all("[A \"1\"]\n[B \"2\"]\n[C \"3\"]\n\n*", limits).faults,
            std::vector<std::string>{"game 1, line 3: it has more than 2 tags"});
  EXPECT_EQ(read_all("1. e4 e5 2. Nf3 Nc6 *", limits).faults,
            std::vector<std::string>{"game 1, line 1: it has more than 3 moves"});
  EXPECT_EQ(read_all("1. " + std::string(1000, 'x') + " *", limits).faults,
            std::vector<std::string>{"game 1, line 1: a word has more than 10 bytes"});
  EXPECT_EQ(read_all("[A \"" + std::string(1000, 'x') + "\"]\n\n1. e4 *", limits).faults,
            std::vector<std::string>{"game 1, line 1: a tag is not of the form [Name \"value\"]"});
}

}  // namespace
}  // namespace tandem::chess
