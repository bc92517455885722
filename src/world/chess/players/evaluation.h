// world/chess/players/evaluation.h -- what a position is worth without looking ahead: material, and where pieces stand.
//
// Tomasz Michniewski's "simplified evaluation function" (chessprogramming.org): whole numbers, hundredths of a pawn.
// It is symmetric: a position with colours exchanged is worth the same to the side that moves.
#pragma once

#include "world/chess/position.h"

namespace tandem::chess {

// 100, 320, 330, 500, 900; a king has no price: 0.
int value_of(PieceType type);

// From the side that is to move. Knows no mate and no draw.
int evaluate(const Position& position);

}  // namespace tandem::chess
