#include "apps/chess/play/time_budget.h"

#include <algorithm>

namespace tandem::chess {
namespace {

constexpr int64_t kMovesAhead = 30;
constexpr int64_t kLongestTime = int64_t{1} << 40;  // 35 years in ms: sums stay numbers

int64_t bounded(const std::optional<int64_t>& time) {
  return std::clamp<int64_t>(time.value_or(0), 0, kLongestTime);  // a clock that ran out may be negative
}

}  // namespace

std::optional<std::chrono::milliseconds> time_for_move(const GoLimits& limits, Side mover,
                                                       std::chrono::milliseconds overhead) {
  const bool white = mover == Side::kWhite;
  const std::optional<int64_t>& clock = white ? limits.white_time : limits.black_time;
  std::optional<int64_t> best;
  if (clock) {
    const int64_t left = std::max<int64_t>(bounded(clock) - overhead.count(), 1);
    const int64_t increment = bounded(white ? limits.white_increment : limits.black_increment);
    const int64_t moves = limits.moves_to_go ? std::clamp<int64_t>(*limits.moves_to_go, 1, kMovesAhead) : kMovesAhead;
    best = std::min(left / moves + increment * 3 / 4, left * 4 / 5);
  }
  if (limits.move_time) {
    const int64_t time = bounded(limits.move_time) - overhead.count();
    best = best ? std::min(*best, time) : time;
  }
  if (!best) return std::nullopt;
  return std::chrono::milliseconds(std::max<int64_t>(*best, 1));
}

}  // namespace tandem::chess
