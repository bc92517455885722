// What the game in the terminal is made of: lines, boards, what a person types.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "apps/chess/play/board_text.h"
#include "apps/chess/play/game_words.h"
#include "apps/chess/play/line_reader.h"
#include "apps/chess/play/player_choice.h"
#include "apps/chess/play/typed_line.h"
#include "apps/chess/uci/uci_player.h"
#include "base/temp_dir.h"
#include "world/chess/fen.h"

namespace tandem::chess {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(fds), 0); }
  ~Pipe() {
    close(fds[0]);
    end();
  }
  void put(const std::string& text) const {
    EXPECT_EQ(write(fds[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (fds[1] >= 0) close(fds[1]);
    fds[1] = -1;
  }
  int fds[2];
};

TEST(LineReading, LinesComeWholeHoweverTheyArrive) {
  Pipe input;
  LineReader lines(input.fds[0], 100);
  input.put("one\r\n\nth");
  EXPECT_EQ(lines.next(), LineReader::Got::kLine);
  EXPECT_EQ(lines.line(), "one");
  EXPECT_EQ(lines.next(), LineReader::Got::kLine);
  EXPECT_EQ(lines.line(), "");
  EXPECT_EQ(lines.next(std::chrono::steady_clock::now()), LineReader::Got::kLate);
  input.put("ree");
  input.end();
  EXPECT_EQ(lines.next(), LineReader::Got::kLine) << "the last line need not have an end";
  EXPECT_EQ(lines.line(), "three");
  EXPECT_EQ(lines.next(), LineReader::Got::kEnd);
  EXPECT_EQ(lines.next(), LineReader::Got::kEnd);
}

TEST(LineReading, LongLinesArePassedOverOneByOne) {
  Pipe input;
  LineReader lines(input.fds[0], 10);
  input.put(std::string(60'000, 'x'));
  EXPECT_EQ(lines.next(std::chrono::steady_clock::now()), LineReader::Got::kLate);
  input.put(std::string(10, 'y') + "\n" + std::string(10, 'z') + "\n" + std::string(11, 'z') + "\nend\n");
  EXPECT_EQ(lines.next(), LineReader::Got::kTooLong);
  EXPECT_EQ(lines.next(), LineReader::Got::kLine);
  EXPECT_EQ(lines.line(), std::string(10, 'z'));
  EXPECT_EQ(lines.next(), LineReader::Got::kTooLong);
  EXPECT_EQ(lines.next(), LineReader::Got::kLine);
  EXPECT_EQ(lines.line(), "end");
  input.put(std::string(50, 'x'));
  input.end();
  EXPECT_EQ(lines.next(), LineReader::Got::kTooLong);
  EXPECT_EQ(lines.next(), LineReader::Got::kEnd);
}

TEST(LineReading, AnotherDescriptorWakesIt) {
  const Pipe input;
  LineReader lines(input.fds[0], 10);
  const int wake = eventfd(1, 0);
  EXPECT_EQ(lines.next(std::nullopt, wake), LineReader::Got::kWoken);
  close(wake);
}

TEST(Board, StandsWithTheChosenSideBelow) {
  const Position start = start_position();
  const std::string white = board_text(start, Move(), {});
  EXPECT_TRUE(white.starts_with(" 8  r  n  b  q  k  b  n  r \n")) << white;
  EXPECT_NE(white.find(" 1  R  N  B  Q  K  B  N  R \n    a  b  c  d  e  f  g  h \n"), std::string::npos) << white;
  const std::string black = board_text(start, Move(), {.bottom = Side::kBlack});
  EXPECT_TRUE(black.starts_with(" 1  R  N  B  K  Q  B  N  R \n")) << black;
  EXPECT_NE(black.find(" 8  r  n  b  k  q  b  n  r \n    h  g  f  e  d  c  b  a \n"), std::string::npos) << black;
}

TEST(Board, MarksTheLastMove) {
  const Move move(12, 28, MoveKind::kDoubleStep);  // e2e4
  const Position position = after(start_position(), move);
  const std::string plain = board_text(position, move, {});
  EXPECT_NE(plain.find(" 4     .     . [P] "), std::string::npos) << plain;
  EXPECT_NE(plain.find(" P [.] P "), std::string::npos) << plain;
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  const std::string color = board_text(position, move, {.unicode = true, .color = true});
  EXPECT_EQ(color.find('['), color.find("\x1b[") + 1) << "colours mark it, not brackets";
  EXPECT_NE(color.find("48;5;186m\x1b[38;5;231m ♟"), std::string::npos) << "e4 is light";
}

TEST(Board, HasUnicodePieces) {
  const std::string board = board_text(start_position(), Move(), {.unicode = true});
  EXPECT_TRUE(board.starts_with(" 8  ♜  ♞  ♝  ♛  ♚  ♝  ♞  ♜ \n")) << board;
  EXPECT_NE(board.find("♖"), std::string::npos);
}

std::string typed(const std::string& fen, const std::string& text) {
  return uci_of(read_typed_move(position_of_fen(fen), text).move);
}

TEST(TypedMoves, AreTakenInAnyUsualSpelling) {
  for (const char* text : {"e4", "e2e4", "E2E4", "e2-e4", "E4"})
    EXPECT_EQ(typed(std::string(kStartFen), text), "e2e4") << text;
  for (const char* text : {"Nf3", "nf3", "NF3", "g1f3"}) EXPECT_EQ(typed(std::string(kStartFen), text), "g1f3") << text;
  const std::string castling = "4k3/8/8/8/8/8/8/4K2R w K - 0 1";
  for (const char* text : {"O-O", "o-o", "0-0", "e1g1"}) EXPECT_EQ(typed(castling, text), "e1g1") << text;
  const std::string promotion = "8/P3k3/8/8/8/8/8/4K3 w - - 0 1";
  for (const char* text : {"a8=Q", "a8=q", "a8Q", "a7a8q", "A8=Q"}) EXPECT_EQ(typed(promotion, text), "a7a8q") << text;
}

TEST(TypedMoves, APawnComesBeforeABishop) {
  const std::string both = "4k3/8/8/8/8/2p5/1P1B4/4K3 w - - 0 1";
  ASSERT_EQ(typed(both, "Bxc3"), "d2c3") << "the bishop can take there too";
  EXPECT_EQ(typed(both, "bxc3"), "b2c3");
  const std::string bishop = "4k3/8/8/8/8/2p5/8/B3K3 w - - 0 1";
  EXPECT_EQ(typed(bishop, "bxc3"), "a1c3");
}

TEST(TypedMoves, TheReasonIsThatOfTheNearestReading) {
  const MoveReading reading = read_typed_move(start_position(), "nf6");
  EXPECT_EQ(reading.fault, MoveReading::Fault::kIllegal) << reading.why;
  EXPECT_EQ(read_typed_move(start_position(), "hello").fault, MoveReading::Fault::kUnreadable);
}

// A GUI has its stop, a person Ctrl-C: no search is too long.
TEST(PlayerChoices, EnginesMaySearchAsLongAsTheyLike) {
  const auto player = choose_player("uci:/bin/cat", "no/runs/here").make({});
  EXPECT_EQ(dynamic_cast<UciPlayer&>(*player).patience().move, kForEver);
}

TEST(PlayerChoices, AFolderIsARunOnlyIfOneIsInIt) {
  const TempDir dir;
  const auto refusal = [&dir] {
    try {
      choose_player(dir.path().string(), dir / "runs");
    } catch (const ConfigError& error) {
      return error.render();
    }
    return std::string();
  };
  EXPECT_NE(refusal().find("is no player"), std::string::npos) << refusal();
  std::ofstream(dir / "run.json") << "{}";
  EXPECT_NE(refusal().find("it is a run"), std::string::npos) << refusal();
}

TEST(GameWords, SayTheRuleThatEndedTheGame) {
  EXPECT_EQ(why_over(GameEnd::kRepetition, DrawRules::fide()), "the same position for the fifth time");
  EXPECT_EQ(why_over(GameEnd::kRepetition, DrawRules::at_first_claim()), "the same position for the third time");
  EXPECT_EQ(why_over(GameEnd::kMoveRule, DrawRules::at_first_claim()),
            "50 moves of each side without capture or pawn move");
}

TEST(TypedLines, CommandsAreKnownInAnyCapitals) {
  EXPECT_EQ(read_typed_line("  Undo ").command, TypedCommand::kUndo);
  EXPECT_EQ(read_typed_line("pgn my games.pgn").rest, "my games.pgn");
  EXPECT_EQ(read_typed_line("").command, TypedCommand::kNone);
  EXPECT_EQ(read_typed_line(" \t ").command, TypedCommand::kNone);
  EXPECT_EQ(read_typed_line("e4").command, TypedCommand::kMove);
  EXPECT_EQ(nearest_command("udno"), "undo");
  EXPECT_EQ(nearest_command("zzzzzz"), "");
}

}  // namespace
}  // namespace tandem::chess
