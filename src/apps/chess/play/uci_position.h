// apps/chess/play/uci_position.h -- the game that `position` lines describe.
//
// A GUI sends the whole game before each move. Where a line begins with all of the last one, only what is new is read,
// so that a game of n moves costs n steps and not n * n.
#pragma once

#include <string>
#include <string_view>

#include "apps/chess/play/uci_input.h"
#include "world/chess/game.h"

namespace tandem::chess {

class UciPosition {
 public:
  const Game& game() const { return game_; }

  // `input` is what read_uci_input() made of `line`. Returns what is wrong with it: then the game stays what it was.
  std::string set(std::string_view line, const UciInput& input);
  // Moves that were read so far, for tests of the promise above.
  int64_t moves_read() const { return moves_read_; }

 private:
  std::string play(Game& game, std::string_view moves);

  Game game_;
  std::string line_;  // of the last good `position` with moves
  int64_t moves_read_ = 0;
};

}  // namespace tandem::chess
