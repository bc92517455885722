// world/chess/perft.h -- how many games of some length begin in a position: the test of a move generator.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "world/chess/moves.h"

namespace tandem::chess {

struct PerftMove {
  Move move;
  uint64_t nodes = 0;
};

// Leaf positions after `depth` moves of both sides together. The last move is counted, not made.
uint64_t perft(const Position& position, int depth);

// How far a count is: after each position two plies deep.
struct PerftProgress {
  int64_t parts = 0, all_parts = 0;  // positions two plies deep
  uint64_t nodes = 0;
};

// The same, for each first move, in the order of legal_moves().
std::vector<PerftMove> perft_divided(const Position& position, int depth,
                                     const std::function<void(const PerftProgress&)>& progress = nullptr);

}  // namespace tandem::chess
