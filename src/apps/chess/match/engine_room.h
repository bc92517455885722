// apps/chess/match/engine_room.h -- whether this process may hold the descriptors of a match's engines.
#pragma once

namespace tandem::chess {

// Of `jobs` games at once, each with so many engines. The soft limit is raised where that is enough. Throws ConfigError
// with the number of games that fit.
void make_room_for_engines(int jobs, int engines_in_a_game);

}  // namespace tandem::chess
