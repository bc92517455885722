// apps/chess/match/move_times.h -- how long a player took for its moves, and how often longer than it was to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace tandem::chess {

struct MoveTimes {
  int64_t moves = 0, overruns = 0;  // beyond its move time by more than a fifth and 50 ms
  std::chrono::nanoseconds sum{0}, largest{0};

  // `limit`: the move time that it was to keep; nothing: another limit, or none.
  void add(std::chrono::nanoseconds took, std::optional<std::chrono::milliseconds> limit) {
    ++moves;
    sum += took;
    largest = std::max(largest, took);
    overruns += limit && took > *limit + *limit / 5 + std::chrono::milliseconds(50);
  }
  void add(const MoveTimes& others) {
    moves += others.moves, overruns += others.overruns, sum += others.sum;
    largest = std::max(largest, others.largest);
  }
  double mean_ms() const { return moves ? ms(sum) / static_cast<double>(moves) : 0; }
  double largest_ms() const { return ms(largest); }

 private:
  static double ms(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }
};

}  // namespace tandem::chess
