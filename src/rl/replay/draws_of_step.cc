#include "rl/replay/draws_of_step.h"

#include <algorithm>

namespace tandem {

ShardDraws draws_of_shard(std::span<const int64_t> sums, int shard, int64_t count) {
  using Wide = __int128;
  ShardDraws draws;
  for (size_t s = 0; s < sums.size(); ++s) {
    if (static_cast<int>(s) < shard) draws.before += sums[s];
    draws.total += sums[s];
  }
  draws.own = sums[shard];
  if (draws.own == 0) return draws;
  // Strata begin at rounded places: one more on each side holds whatever the rounding did.
  const auto stratum = [&](int64_t at) { return static_cast<int64_t>(Wide(at) * Wide(count) / Wide(draws.total)); };
  draws.first = std::max<int64_t>(0, stratum(draws.before) - 1);
  draws.last = std::min<int64_t>(count, stratum(draws.before + draws.own) + 2);
  return draws;
}

}  // namespace tandem
