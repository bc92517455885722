// apps/chess/play/game_words.h -- what a game in the terminal says of ends, scores, and what can be typed.
#pragma once

#include <string>
#include <string_view>

#include "world/chess/game.h"
#include "world/chess/players/player.h"

namespace tandem::chess {

// What can be typed, a line for each.
extern const std::string_view kTypedHelp;

// "the same position for the fifth time".
std::string why_over(GameEnd end, const DrawRules& rules);

// "   (+0.31, depth 2)"; empty where the player judges no positions.
std::string score_in_words(const Thought& thought);

}  // namespace tandem::chess
