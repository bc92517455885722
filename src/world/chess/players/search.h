// world/chess/players/search.h -- minimax by alpha-beta: the value of a position to a fixed depth, exactly.
//
// Mate counts kMateScore less the half-moves to it, so that the shorter way to mate is better and the longer way to be
// mated too. A position that is there for the third time, 50 moves without capture or pawn move, stalemate and dead
// positions are worth 0: what either side may claim is over.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "world/chess/game.h"

namespace tandem::chess {

inline constexpr int kMateScore = 30000;
inline constexpr int kLongestMate = 1000;  // half-moves; scores beyond kMateScore - kLongestMate are mates

// What stands at the leaves.
enum class Leaf : uint8_t {
  kAsItStands,  // evaluation.h
  kSettled,     // the best that captures and promotions make of it, so that nothing hangs
};

struct RootMove {
  Move move;
  int score;  // from the side to move; exact for the best moves, at most best - 1 for the others
};

class GameSearch {
 public:
  // `stopped` is asked now and then; once it is true, the search ends.
  explicit GameSearch(const Game& game, Leaf leaf, std::function<bool()> stopped = nullptr);

  // All legal moves with their values at this depth, >= 1; empty if it was stopped. At the end of a game: empty too.
  // `first` is tried first, which only saves time.
  std::vector<RootMove> moves_at(int depth, Move first = Move());
  // The value of the position itself; depth 0 is the leaf.
  int value_at(int depth);
  int64_t nodes() const { return nodes_; }

 private:
  int value(const Position& position, int depth, int ply, int alpha, int beta);
  int settled(const Position& position, int ply, int alpha, int beta);
  int after_move(const Position& position, Move move, int depth, int ply, int alpha, int beta);
  bool is_drawn(const Position& position) const;
  bool is_stopped();

  Position root_;
  Leaf leaf_;
  std::function<bool()> stopped_;
  std::vector<uint64_t> hashes_;  // of the game, then of the line being looked at
  int64_t nodes_ = 0;
  bool over_ = false;  // stopped
};

}  // namespace tandem::chess
