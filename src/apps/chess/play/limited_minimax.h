// apps/chess/play/limited_minimax.h -- minimax that also keeps a limit of nodes, as a chess program may ask for one.
//
// The move is that of the deepest search that was finished. GameSearch asks every 1,024 nodes whether to go on, so that
// up to so many more may be looked at.
#pragma once

#include "world/chess/players/builtin_players.h"

namespace tandem::chess {

class LimitedMinimax : public MinimaxPlayer {
 public:
  explicit LimitedMinimax(int depth) : MinimaxPlayer(depth), depth_(depth) {}
  Thought think(const Game& game, const ThinkRequest& request) override;

 private:
  int depth_;
};

}  // namespace tandem::chess
