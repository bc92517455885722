#include "apps/chess/play/limited_minimax.h"

#include <algorithm>

#include "world/chess/players/search.h"

namespace tandem::chess {
namespace {

Score score_of_search(int value) {
  const int plies = kMateScore - std::abs(value);
  if (plies >= kLongestMate) return {.centipawns = value};
  return {.mate_in = value > 0 ? (plies + 1) / 2 : -plies / 2};
}

}  // namespace

Thought LimitedMinimax::think(const Game& game, const ThinkRequest& request) {
  if (!request.nodes) return MinimaxPlayer::think(game, request);
  const GameSearch* counted = nullptr;
  GameSearch search(game, Leaf::kAsItStands,
                    [&] { return request.stop.stop_requested() || counted->nodes() >= *request.nodes; });
  counted = &search;
  MoveList legal;
  legal_moves(game.position(), legal);
  Thought thought{.move = draw({legal.begin(), legal.end()}, game)};  // where it was stopped before it saw anything
  for (int depth = 1; depth <= std::min(depth_, request.depth.value_or(depth_)); ++depth) {
    const std::vector<RootMove> moves = search.moves_at(depth, thought.move);
    if (moves.empty()) break;
    const int best = std::ranges::max_element(moves, {}, &RootMove::score)->score;
    std::vector<Move> equal;
    for (const RootMove& root : moves)
      if (root.score == best) equal.push_back(root.move);
    thought = {.move = draw(std::move(equal), game), .score = score_of_search(best), .depth = depth};
    thought.nodes = search.nodes();
    thought.line = {thought.move};
    if (request.report) request.report(thought);
  }
  return thought;
}

}  // namespace tandem::chess
