// world/chess/fen.h -- positions as text: FEN in and out, with the rule that an impossible one breaks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "world/chess/position.h"

namespace tandem::chess {

inline constexpr std::string_view kStartFen = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

// Rules that a position can break, judged as python-chess does in Board.status().
enum class PositionRule : uint8_t {
  kEmpty,
  kNoWhiteKing,
  kNoBlackKing,
  kTooManyKings,
  kTooManyWhitePieces,
  kTooManyBlackPieces,
  kTooManyWhitePawns,
  kTooManyBlackPawns,
  kPawnsOnBackrank,
  kBadCastlingRights,
  kInvalidEpSquare,
  kOppositeCheck,
  kTooManyCheckers,
  kImpossibleCheck,
};
std::string_view word_of(PositionRule rule);  // "opposite-check", for scripts: python-chess's name

struct BrokenRule {
  PositionRule rule;
  std::string sentence;  // "it is White's move, but Black's king is in check"
};

// What read_fen() makes of a text.
struct FenReading {
  Position position;               // usable only if it is good()
  std::string syntax;              // what is wrong with the text itself; empty: it can be read
  std::vector<BrokenRule> broken;  // what is wrong with the position

  bool good() const { return syntax.empty() && broken.empty(); }
  std::string complaint() const;  // all that is wrong, in words
};

// Fields after the board may be missing (white to move, no castling, no en passant, 0, 1). Any text is safe.
FenReading read_fen(std::string_view text);
// Throws ConfigError: which text, what is wrong, what a FEN looks like.
Position position_of_fen(std::string_view text);

// The en-passant square stands there only if a capture is legal, as python-chess writes it.
std::string fen_of(const Position& position);

// "e4"
std::string square_name(Square square);

}  // namespace tandem::chess
