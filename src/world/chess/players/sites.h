// world/chess/players/sites.h -- the places of chess games that draw random numbers (kernels/philox.h); two never share
// a site. The numbers never change: they are part of what a seed means.
#pragma once

#include <cstdint>

namespace tandem::chess {

enum RandomSite : uint32_t {
  kDrawnMove = 1,     // step: half-moves before it
  kGameSeed = 2,      // step: number of the game, shard: 0 White, 1 Black
  kOpeningMove = 3,   // step: number of the opening, shard: attempt
  kOpeningOrder = 4,  // of a file's openings
};

}  // namespace tandem::chess
