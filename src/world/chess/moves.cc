#include "world/chess/moves.h"

#include "world/chess/move_functions.h"

namespace tandem::chess {

const MoveFunctions& fastest_moves() {
  static const MoveFunctions* const chosen = [] {
    if (const MoveFunctions* functions = pext_moves()) return functions;
    if (const MoveFunctions* functions = bmi2_moves()) return functions;
    return portable_moves();
  }();
  return *chosen;
}

void legal_moves(const Position& position, MoveList& list) { fastest_moves().legal_moves(position, list); }

int count_legal_moves(const Position& position) { return fastest_moves().count_legal_moves(position); }

bool is_legal(const Position& position, Move move) {
  MoveList list;
  legal_moves(position, list);
  return list.contains(move);
}

bool in_check(const Position& position) { return fastest_moves().in_check(position); }

}  // namespace tandem::chess
