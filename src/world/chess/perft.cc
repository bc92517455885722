#include "world/chess/perft.h"

#include "world/chess/move_functions.h"

namespace tandem::chess {

uint64_t perft(const Position& position, int depth) { return fastest_moves().perft(position, depth); }

std::vector<PerftMove> perft_divided(const Position& position, int depth,
                                     const std::function<void(const PerftProgress&)>& progress) {
  std::vector<PerftMove> all;
  if (depth <= 0) return all;
  const bool in_parts = depth > 2 && progress;
  PerftProgress done{.all_parts = in_parts ? static_cast<int64_t>(perft(position, 2)) : 0};
  MoveList list, replies;
  legal_moves(position, list);
  for (const Move move : list) {
    const Position next = after(position, move);
    all.push_back({move, 0});
    if (!in_parts) {
      all.back().nodes = perft(next, depth - 1);
      continue;
    }
    legal_moves(next, replies);
    for (const Move reply : replies) {
      const uint64_t nodes = perft(after(next, reply), depth - 2);
      all.back().nodes += nodes;
      done.nodes += nodes;
      ++done.parts;
      progress(done);
    }
  }
  return all;
}

}  // namespace tandem::chess
