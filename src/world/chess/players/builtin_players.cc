#include "world/chess/players/builtin_players.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kernels/philox.h"
#include "world/chess/players/evaluation.h"
#include "world/chess/players/search.h"
#include "world/chess/players/sites.h"

namespace tandem::chess {
namespace {

std::vector<Move> moves_of(const Game& game) {
  MoveList list;
  legal_moves(game.position(), list);
  return {list.begin(), list.end()};
}

int material_won(const Position& p, Move move) {
  const PieceType captured = move.kind() == MoveKind::kEnPassant ? PieceType::kPawn : p.type_at(move.to());
  const int promoted = move.is_promotion() ? value_of(move.promotion()) - value_of(PieceType::kPawn) : 0;
  return value_of(captured) + promoted;
}

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

Score score_of(int value) {
  const int plies = kMateScore - (value < 0 ? -value : value);
  if (plies >= kLongestMate) return {.centipawns = value};
  return {.mate_in = value > 0 ? (plies + 1) / 2 : -plies / 2};
}

}  // namespace

Move draw_move(std::vector<Move> moves, uint64_t seed, int64_t ply) {
  if (moves.empty()) return Move();
  std::ranges::sort(moves, [](Move a, Move b) { return a.bits() < b.bits(); });
  const RandomKey key{.seed = seed, .step = static_cast<uint64_t>(ply), .site = kDrawnMove};
  return moves[random_below(key, 0, static_cast<uint32_t>(moves.size()))];
}

Thought RandomPlayer::think(const Game& game, const ThinkRequest&) { return {.move = draw(moves_of(game), game)}; }

Thought GreedyPlayer::think(const Game& game, const ThinkRequest&) {
  std::vector<Move> best;
  int most = 0;
  for (const Move move : moves_of(game)) {
    const int won = material_won(game.position(), move);
    if (won > most) best.clear(), most = won;
    if (won == most) best.push_back(move);
  }
  return {.move = draw(std::move(best), game), .depth = 1};
}

std::string MinimaxPlayer::name() const {
  return depth_ == kDepth ? "minimax" : fmt::format("minimax, depth {}", depth_);
}

Thought MinimaxPlayer::think(const Game& game, const ThinkRequest& request) {
  const int depth = std::clamp(request.depth.value_or(depth_), 1, depth_);
  const int64_t most = keeps_nodes_ ? request.nodes.value_or(kNoLimit) : kNoLimit;
  const GameSearch* counted = nullptr;
  GameSearch search(game, Leaf::kAsItStands, [&] { return request.stop.stop_requested() || counted->nodes() >= most; });
  counted = &search;
  Thought thought{.move = draw(moves_of(game), game)};  // where it is stopped before it has seen anything
  for (int d = 1; d <= depth; ++d) {
    const std::vector<RootMove> moves = search.moves_at(d, thought.move);
    if (moves.empty()) break;
    const int best = std::ranges::max_element(moves, {}, &RootMove::score)->score;
    std::vector<Move> equal;
    for (const RootMove& root : moves)
      if (root.score == best) equal.push_back(root.move);
    thought = {.move = draw(std::move(equal), game), .score = score_of(best), .depth = d, .nodes = search.nodes()};
    thought.line = {thought.move};
    if (request.report) request.report(thought);
  }
  return thought;
}

}  // namespace tandem::chess
