// world/chess/players/random_opening.h -- openings by rule instead of by book: random, short, and fair to both sides.
#pragma once

#include <cstdint>

#include "world/chess/game.h"

namespace tandem::chess {

inline constexpr int kOpeningPlies = 8;
inline constexpr int kBalance = 50;  // hundredths of a pawn
inline constexpr int kOpeningAttempts = 1000;
inline constexpr int kMostOpeningPlies = 40;

// Opening `number` of a seed: `plies` half-moves, each drawn from all legal ones, after which the game is not over, the
// side to move is not in check, and a search of two half-moves with all captures played out (search.h) finds neither
// side more than kBalance ahead. Draws that break this are drawn again; after kOpeningAttempts the fairest is taken.
Game random_opening(uint64_t seed, int64_t number, int plies = kOpeningPlies);

}  // namespace tandem::chess
