// apps/chess/match/match_line.h -- what the line `tandem match ...` asks for. Nothing is started yet; an opening book
// is read.
#pragma once

#include <optional>
#include <string>

#include "apps/chess/match/match_runner.h"
#include "apps/chess/player_name.h"
#include "command/command.h"

namespace tandem::chess {

struct MatchLine {
  PlayerName first, second;
  MatchPlan plan;
  UciPatience patience;
  std::optional<double> anchor;
  std::string openings, limit;  // in words
};

// Throws ConfigError: which flag, player or opening is none.
MatchLine read_match_line(const Command& command);

}  // namespace tandem::chess
