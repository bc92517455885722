// world/chess/moves.h -- the rules as a program calls them on the CPU: legal moves, make, check. The fastest way that
// this CPU offers is chosen once, at the first call; all give the same lists in the same order.
//
// CUDA code calls the templates of move_generator.h and make_move.h, which these are made of.
#pragma once

#include "world/chess/make_move.h"
#include "world/chess/move.h"
#include "world/chess/position.h"

namespace tandem::chess {

// Replaces what the list holds.
void legal_moves(const Position& position, MoveList& list);
int count_legal_moves(const Position& position);
bool is_legal(const Position& position, Move move);
// Is the side to move in check?
bool in_check(const Position& position);
// The position after a legal move; make_move() changes a position in place.
inline Position after(const Position& position, Move move) {
  Position next = position;
  make_move(next, move);
  return next;
}

}  // namespace tandem::chess
