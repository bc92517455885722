#include "world/chess/players/search.h"

#include <algorithm>

#include "world/chess/players/evaluation.h"

namespace tandem::chess {
namespace {

constexpr int kInfinite = kMateScore + 1;
constexpr int64_t kNodesBetweenQuestions = 1024;

// What a move brings at once: what it captures, and what a pawn becomes.
int gain_of(const Position& p, Move move) {
  const PieceType captured = move.kind() == MoveKind::kEnPassant ? PieceType::kPawn : p.type_at(move.to());
  int gain = value_of(captured);
  if (move.is_promotion()) gain += value_of(move.promotion()) - value_of(PieceType::kPawn);
  return gain;
}

// The largest gain by the least piece first: the sooner a good move is found, the more can be cut off.
void sort_by_gain(const Position& p, Move* begin, Move* end) {
  const auto rank = [&p](Move m) { return 16 * gain_of(p, m) - static_cast<int>(p.type_at(m.from())); };
  std::sort(begin, end, [&](Move a, Move b) {
    const int left = rank(a), right = rank(b);
    return left != right ? left > right : a.bits() < b.bits();
  });
}

}  // namespace

GameSearch::GameSearch(const Game& game, Leaf leaf, std::function<bool()> stopped)
    : root_(game.position()),
      leaf_(leaf),
      stopped_(std::move(stopped)),
      hashes_(game.hashes().begin(), game.hashes().end()) {}

bool GameSearch::is_stopped() {
  if (!over_ && stopped_ && nodes_ % kNodesBetweenQuestions == 0) over_ = stopped_();
  return over_;
}

// Mate comes before all of these, so they are asked where a legal move exists.
bool GameSearch::is_drawn(const Position& p) const {
  return is_dead_position(p) || p.halfmove_clock >= 100 ||
         repetitions_of_last(hashes_.data(), static_cast<int64_t>(hashes_.size()), p.halfmove_clock) >= 3;
}

int GameSearch::after_move(const Position& position, Move move, int depth, int ply, int alpha, int beta) {
  const Position next = after(position, move);
  hashes_.push_back(next.hash);
  const int score = -value(next, depth, ply, -beta, -alpha);
  hashes_.pop_back();
  return score;
}

int GameSearch::value(const Position& position, int depth, int ply, int alpha, int beta) {
  ++nodes_;
  if (is_stopped()) return 0;
  MoveList list;
  legal_moves(position, list);
  if (list.size == 0) return in_check(position) ? ply - kMateScore : 0;
  if (is_drawn(position)) return 0;
  if (depth == 0) return leaf_ == Leaf::kAsItStands ? evaluate(position) : settled(position, ply, alpha, beta);
  sort_by_gain(position, list.moves, list.moves + list.size);
  int best = -kInfinite;
  for (const Move move : list) {
    best = std::max(best, after_move(position, move, depth - 1, ply + 1, std::max(alpha, best), beta));
    if (best >= beta || over_) break;
  }
  return best;
}

// Who is in check has to answer it; everybody else may also leave the position as it is.
int GameSearch::settled(const Position& position, int ply, int alpha, int beta) {
  ++nodes_;
  if (is_stopped()) return 0;
  MoveList list;
  legal_moves(position, list);
  const bool check = in_check(position);
  if (list.size == 0) return check ? ply - kMateScore : 0;
  int best = check ? -kInfinite : evaluate(position);
  if (best >= beta) return best;
  Move* end = list.moves + list.size;
  if (!check) end = std::remove_if(list.moves, end, [&](Move m) { return gain_of(position, m) <= 0; });
  sort_by_gain(position, list.moves, end);
  for (const Move* move = list.moves; move != end && !over_; ++move) {
    best = std::max(best, -settled(after(position, *move), ply + 1, -beta, -std::max(alpha, best)));
    if (best >= beta) break;
  }
  return best;
}

std::vector<RootMove> GameSearch::moves_at(int depth, Move first) {
  MoveList list;
  legal_moves(root_, list);
  sort_by_gain(root_, list.moves, list.moves + list.size);
  if (Move* const at = std::find(list.moves, list.moves + list.size, first); at != list.moves + list.size)
    std::rotate(list.moves, at, at + 1);
  std::vector<RootMove> moves;
  int best = -kInfinite;
  for (const Move move : list) {
    // One below the best, so that a move of equal value is seen to be equal.
    const int score = after_move(root_, move, depth - 1, 1, best > -kInfinite ? best - 1 : best, kInfinite);
    if (over_) return {};
    moves.push_back({move, score});
    best = std::max(best, score);
  }
  return moves;
}

int GameSearch::value_at(int depth) { return value(root_, depth, 0, -kInfinite, kInfinite); }

}  // namespace tandem::chess
