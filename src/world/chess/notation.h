// world/chess/notation.h -- moves as text: UCI (e2e4, e7e8q, e1g1) and SAN (Nbd7, exd8=Q+, O-O), in and out.
#pragma once

#include <string>
#include <string_view>

#include "world/chess/fen.h"
#include "world/chess/moves.h"

namespace tandem::chess {

// What a text of a move means in a position.
struct MoveReading {
  enum class Fault : uint8_t {
    kNone,
    kUnreadable,  // no move in this notation
    kIllegal,     // a move, but not a legal one here
    kAmbiguous,   // several legal moves fit
  };
  Move move = Move();
  Fault fault = Fault::kNone;
  std::string why;  // "the king would be in check", "no knight can go to e5": for a person

  bool good() const { return fault == Fault::kNone; }
};

std::string uci_of(Move move);  // of Move(): "0000"
MoveReading read_uci(const Position& position, std::string_view text);

// `move` is legal. With + or #.
std::string san_of(const Position& position, Move move);
// Reads what python-chess reads: too much said (Ng1f3, e2-e4), 0-0, missing or wrong + and #, e8Q.
MoveReading read_san(const Position& position, std::string_view text);
// As a person types it: UCI or SAN.
MoveReading read_move(const Position& position, std::string_view text);

}  // namespace tandem::chess
