// world/chess/sliders.h -- what bishops, rooks and queens attack, computed without a table: for GPUs, and for CPUs
// without PEXT.
//
// A `Sliders` type has two static functions, diagonal(square, occupied) and straight(square, occupied): the squares up
// to and including the first occupied one in each direction. Move generation is a template over it; all give the same
// sets, so that what is chosen changes the speed alone.
#pragma once

#include "world/chess/bitboard.h"

namespace tandem::chess {

// "Obstruction difference": from the nearest blocker below to the nearest one above, by one subtraction. Where there is
// none below, bit 0 stands for it; where there is none above, the subtraction from 0 gives all bits up to the edge.
TANDEM_HD Bitboard line_attacks(Square square, Bitboard line, Bitboard occupied) {
  const Bitboard below = bit(square) - 1, blockers = occupied & line;
  const Bitboard upper = blockers & ~below;
  const Bitboard nearest_below = highest_bit((blockers & below) | 1);
  return line & (((upper & -upper) << 1) - nearest_below);
}

struct ComputedSliders {
  TANDEM_HD static Bitboard diagonal(Square square, Bitboard occupied) {
    return line_attacks(square, diagonal_of(square), occupied) |
           line_attacks(square, antidiagonal_of(square), occupied);
  }
  TANDEM_HD static Bitboard straight(Square square, Bitboard occupied) {
    return line_attacks(square, file_through(square), occupied) | line_attacks(square, rank_through(square), occupied);
  }
};

}  // namespace tandem::chess
