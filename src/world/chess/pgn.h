// world/chess/pgn.h -- games as PGN text, in and out.
//
// In: any number of games from a stream, one at a time, in bounded memory; any bytes are safe. Comments, NAGs and
// variations are passed over. A game that can't be followed is a fault with game, line and move, and the games after it
// can still be read. Out: the seven tags first, SetUp and FEN where a game does not begin at the start, lines of at
// most 80 characters.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "world/chess/game.h"

namespace tandem::chess {

struct PgnGame {
  std::vector<std::pair<std::string, std::string>> tags;  // without FEN, SetUp and Result, which the fields below know
  Game game;
  std::string result = "*";           // "1-0", "0-1", "1/2-1/2" or "*"
  std::vector<std::string> comments;  // [n] is written after move n; there may be fewer than moves. Reading gives none
  std::string preface = {};           // a comment before the first move

  std::string tag(std::string_view name, std::string_view otherwise = "?") const;
  void set_tag(std::string_view name, std::string_view value);  // replaces its value, or adds it
};

// The game as text, with an empty line at its end.
std::string pgn_of(const PgnGame& game);

// What is wrong with a game, and where.
struct PgnFault {
  int64_t game = 0;  // of the stream, from 1
  int64_t line = 0;  // of the stream, from 1
  std::string move;  // "23... Qxe9"; empty where it is not a move
  std::string why;   // "no queen can go to e9"

  std::string text() const;  // "game 3, line 57: 23... Qxe9: no queen can go to e9"
};

struct PgnLimits {
  size_t longest_word = 4096;  // bytes of a tag's value or of a word; comments may be longer
  size_t most_tags = 256;
  size_t most_moves = 20000;
};

class PgnReader {
 public:
  explicit PgnReader(std::istream& in, const PgnLimits& limits = {});

  // The next game, or nothing at the end. If fault() is set afterwards, the game has the moves before the fault.
  std::optional<PgnGame> next();
  const std::optional<PgnFault>& fault() const { return fault_; }

 private:
  static constexpr int kEnd = -1;
  int peek() const;
  int take();
  void skip_blanks();  // and comments, and lines that begin with %
  void skip_line();
  void skip_comment();    // after {
  void skip_variation();  // after (
  void blame(std::string why, std::string move = "");
  void read_tags(PgnGame& game);
  bool read_tag(std::string& name, std::string& value);
  std::string read_word();
  void read_moves(PgnGame& game);
  void play_word(PgnGame& game, std::string_view word);

  std::streambuf& in_;
  PgnLimits limits_;
  std::optional<PgnFault> fault_;
  int64_t line_ = 1, games_ = 0;
  bool line_start_ = true;  // but for blanks
};

}  // namespace tandem::chess
