// apps/chess/play/time_budget.h -- how long to think about one move of a game with clocks.
#pragma once

#include <chrono>
#include <optional>

#include "apps/chess/play/uci_input.h"
#include "world/chess/bitboard.h"

namespace tandem::chess {

// With a clock: an equal share of what is left for the moves until the next time control (30 where there is none), and
// three quarters of the increment; never more than four fifths of what is left. `movetime` is taken as it is. Both
// less `overhead`, which the way to the GUI and back may take; at least 1 ms. Nothing where neither was given.
std::optional<std::chrono::milliseconds> time_for_move(const GoLimits& limits, Side mover,
                                                       std::chrono::milliseconds overhead);

}  // namespace tandem::chess
