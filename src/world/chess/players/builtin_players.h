// world/chess/players/builtin_players.h -- three players without a process: random, greedy and minimax.
//
// Where several moves are equally good, the game's seed draws one of them; each is as likely. They need no limits:
// minimax looks to its depth, or to a request's where that is less, and ends earlier only when it is told to stop, or
// at a request's nodes where it was made to keep them.
#pragma once

#include "world/chess/players/player.h"

namespace tandem::chess {

// Draws among the moves, sorted by Move::bits(), for the player of the game with this seed before move `ply`;
// Move() where there are none.
Move draw_move(std::vector<Move> moves, uint64_t seed, int64_t ply);

class SeededPlayer : public Player {
 protected:
  Move draw(std::vector<Move> moves, const Game& game) const {
    return draw_move(std::move(moves), seed_, static_cast<int64_t>(game.moves().size()));
  }

 private:
  void prepare_game(uint64_t seed, const std::stop_token&) override { seed_ = seed; }

  uint64_t seed_ = 0;
};

// Any legal move, each as likely.
class RandomPlayer : public SeededPlayer {
 public:
  std::string name() const override { return "random"; }
  Thought think(const Game& game, const ThinkRequest& request) override;
};

// The move that wins most material at once: what it captures, en passant too, and what a pawn becomes. It looks at no
// answer. Where nothing can be won, any move.
class GreedyPlayer : public SeededPlayer {
 public:
  std::string name() const override { return "greedy"; }
  Thought think(const Game& game, const ThinkRequest& request) override;
};

// The best move to a depth of half-moves (search.h), by the evaluation of evaluation.h.
class MinimaxPlayer : public SeededPlayer {
 public:
  static constexpr int kDepth = 2, kDeepest = 6;
  // In a match the depth is its limit, and what a request has for others changes nothing (kIgnored). A chess program
  // may ask for nodes (kKept): the move is that of the deepest search that was finished. GameSearch asks every 1,024
  // nodes whether to go on, so that up to so many more may be looked at.
  enum class NodeLimit : uint8_t { kIgnored, kKept };
  explicit MinimaxPlayer(int depth = kDepth, NodeLimit nodes = NodeLimit::kIgnored)
      : depth_(depth), keeps_nodes_(nodes == NodeLimit::kKept) {}
  std::string name() const override;
  Thought think(const Game& game, const ThinkRequest& request) override;

 private:
  int depth_;
  bool keeps_nodes_;
};

}  // namespace tandem::chess
