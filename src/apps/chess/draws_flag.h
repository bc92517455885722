// apps/chess/draws_flag.h -- the flag --draws, when a game is drawn without a claim.
#pragma once

#include <string>

#include "world/chess/game.h"

namespace tandem::chess {

// "claim": at the third repetition and 50 moves; "fide": at the fifth and 75. Throws ConfigError.
DrawRules read_draws(const std::string& word);

}  // namespace tandem::chess
