// apps/chess/play/board_text.h -- a position as people see it on a screen.
//
//    8  ♜  ♞  ♝  ♛  ♚  ♝  ♞  ♜        The squares of the last move are in brackets; with colour they have one of
//    ...                               their own, and so have the squares and the pieces.
//    1  ♖  ♘  ♗  ♕  ♔  ♗  ♘  ♖
//       a  b  c  d  e  f  g  h
#pragma once

#include <string>

#include "world/chess/move.h"
#include "world/chess/position.h"

namespace tandem::chess {

struct BoardStyle {
  bool unicode = false;  // else letters: capitals are White's
  bool color = false;    // 256 colours
  Side bottom = Side::kWhite;
};

// `last`: Move() where there was none.
std::string board_text(const Position& position, Move last, const BoardStyle& style);

}  // namespace tandem::chess
