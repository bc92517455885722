#include "world/chess/game.h"

#include <cassert>

namespace tandem::chess {

std::string_view word_of(GameEnd end) {
  switch (end) {
    case GameEnd::kNone:
      return "not over";
    case GameEnd::kCheckmate:
      return "checkmate";
    case GameEnd::kStalemate:
      return "stalemate";
    case GameEnd::kDeadPosition:
      return "insufficient material";
    case GameEnd::kMoveRule:
      return "move rule";
    case GameEnd::kRepetition:
      return "repetition";
  }
  return "?";
}

std::string_view GameResult::text() const {
  if (!over()) return "*";
  if (!winner) return "1/2-1/2";
  return *winner == Side::kWhite ? "1-0" : "0-1";
}

GameResult result_of(const Position& position, int repetitions, const DrawRules& rules) {
  const bool can_move = count_legal_moves(position) > 0;
  if (!can_move && in_check(position)) return {GameEnd::kCheckmate, other(position.side_to_move)};
  if (is_dead_position(position)) return {GameEnd::kDeadPosition, {}};
  if (!can_move) return {GameEnd::kStalemate, {}};
  if (position.halfmove_clock >= 2 * rules.moves) return {GameEnd::kMoveRule, {}};
  if (repetitions >= rules.repetitions) return {GameEnd::kRepetition, {}};
  return {};
}

Game::Game() : Game(start_position()) {}

Game::Game(const Position& start) : start_(start), position_(start), hashes_{start.hash} {}

void Game::play(Move move) {
  assert(is_legal(position_, move));
  make_move(position_, move);
  moves_.push_back(move);
  hashes_.push_back(position_.hash);
}

bool Game::undo(int count) {
  if (count < 0 || static_cast<size_t>(count) > moves_.size()) return false;
  moves_.resize(moves_.size() - static_cast<size_t>(count));
  hashes_.resize(moves_.size() + 1);
  position_ = start_;
  for (const Move move : moves_) make_move(position_, move);
  return true;
}

int Game::repetitions() const {
  return repetitions_of_last(hashes_.data(), static_cast<int64_t>(hashes_.size()), position_.halfmove_clock);
}

GameResult Game::result(const DrawRules& rules) const { return result_of(position_, repetitions(), rules); }

bool Game::can_claim_fifty_moves() const {
  constexpr int kClaim = 100;  // half-moves
  if (position_.halfmove_clock < kClaim - 1) return false;
  MoveList list;
  legal_moves(position_, list);
  if (position_.halfmove_clock >= kClaim) return list.size > 0;
  for (const Move move : list) {
    const Position next = after(position_, move);
    if (next.halfmove_clock >= kClaim && count_legal_moves(next) > 0) return true;
  }
  return false;
}

bool Game::can_claim_threefold_repetition() const {
  if (repetitions() >= 3) return true;
  MoveList list;
  legal_moves(position_, list);
  std::vector<uint64_t> hashes = hashes_;
  hashes.push_back(0);
  for (const Move move : list) {
    const Position next = after(position_, move);
    hashes.back() = next.hash;
    if (repetitions_of_last(hashes.data(), static_cast<int64_t>(hashes.size()), next.halfmove_clock) >= 3) return true;
  }
  return false;
}

}  // namespace tandem::chess
