// world/catch_game.h -- a ball falls, a paddle catches it or not: the smallest game with a delayed reward.
//
// 8 rows, 5 columns. The ball falls one row a move; three moves: left, stay, right. On the last row the game ends with
// +1 if the paddle is under the ball, else -1. It can always be caught, so the best mean return is 1; random play gets
// -0.6.
#pragma once

#include <cstdint>

namespace tandem {

struct CatchGame {
  static constexpr int kRows = 8, kColumns = 5, kMoves = 3, kFeatures = 5;
  static constexpr int kLength = kRows - 1;  // moves of a game

  int32_t row = 0, ball = 0, paddle = 0;

  static CatchGame start(uint32_t random_ball, uint32_t random_paddle) {
    return {0, static_cast<int32_t>(random_ball % kColumns), static_cast<int32_t>(random_paddle % kColumns)};
  }

  void observe(float* out) const {  // kFeatures numbers
    out[0] = static_cast<float>(row) / (kRows - 1);
    out[1] = static_cast<float>(ball) / (kColumns - 1);
    out[2] = static_cast<float>(paddle) / (kColumns - 1);
    out[3] = ball < paddle ? 1.0f : 0.0f;
    out[4] = ball > paddle ? 1.0f : 0.0f;
  }

  // Plays a move (0 left, 1 stay, 2 right). Returns the reward; done(): the game is over.
  int move(int32_t action) {
    paddle += action - 1;
    if (paddle < 0) paddle = 0;
    if (paddle >= kColumns) paddle = kColumns - 1;
    ++row;
    if (!done()) return 0;
    return paddle == ball ? 1 : -1;
  }

  bool done() const { return row >= kLength; }
};

}  // namespace tandem
