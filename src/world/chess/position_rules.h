// world/chess/position_rules.h -- which rules of chess a position on paper breaks.
#pragma once

#include <vector>

#include "world/chess/fen.h"

namespace tandem::chess {

// Of a position of any pieces. `en_passant`: the square that was given, which may be none that is possible; -1: none.
// `foreign_castling`: rights of rooks that stand elsewhere were given too (Chess960).
std::vector<BrokenRule> rules_broken_by(const Position& position, Square en_passant, bool foreign_castling);

}  // namespace tandem::chess
