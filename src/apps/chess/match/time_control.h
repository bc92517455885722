// apps/chess/match/time_control.h -- a clock for each side of a game: how much there is, and when a flag has fallen.
//
// The rule: the clock of a side runs from the moment at which its player is told the position until its move is there.
// Whoever needs more than it had left and kFlagMargin has lost on time, whatever the move was; it is a draw where the
// other side has nothing to mate with. The increment is added after each move, further time after each `moves` of them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "world/chess/players/player.h"

namespace tandem::chess {

inline constexpr std::chrono::milliseconds kFlagMargin{50};  // for the way to the engine and back

struct TimeControl {
  std::chrono::milliseconds time{0}, increment{0};
  int moves = 0;  // after so many moves there is `time` more; 0: it is for the whole game

  // As PGN has it: "60+0.6", "40/300".
  std::string text() const;
};

// "60+0.6" or "40/300+2", in seconds. Throws ConfigError.
TimeControl read_time_control(std::string_view text);

class GameClocks {
 public:
  explicit GameClocks(const TimeControl& control);

  // For a player that is to move.
  Clocks left(Side mover) const;
  // A move of `side` took so long; false: its flag has fallen.
  bool press(Side side, std::chrono::nanoseconds took);

 private:
  TimeControl control_;
  std::chrono::nanoseconds left_[2];
  int made_[2] = {0, 0};
};

}  // namespace tandem::chess
