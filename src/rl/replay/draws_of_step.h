// rl/replay/draws_of_step.h -- which transitions of the whole buffer a step draws; each shard finds those in its part.
//
// The mass of all priorities is [0, total), shard after shard. It is cut into `count` strata of equal size and draw k
// falls into stratum k, at a place given by (seed, step, k) alone. So every shard knows all draws, answers for those in
// its own mass, and the buffer is sampled as one, however it is split.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/philox.h"

namespace tandem {

// Where draw k of `count` falls in [0, total): never before draw k - 1, so that several draws of one transition are
// neighbours (a GPU's store() relies on it). total < 2^62, count < 2^31; total may be smaller than count.
TANDEM_HD int64_t place_of_draw(const RandomKey& key, int64_t k, int64_t count, int64_t total) {
  using Wide = unsigned __int128;
  const uint64_t strata = static_cast<uint64_t>(count), each = static_cast<uint64_t>(total) / strata,
                 rest = static_cast<uint64_t>(total) - each * strata;
  const auto edge = [&](int64_t i) {  // floor(total * i / count), without wide divisions: a GPU has none
    const uint64_t more = rest * static_cast<uint64_t>(i);
    return each * static_cast<uint64_t>(i) +
           (more >> 32 ? more / strata : static_cast<uint32_t>(more) / static_cast<uint32_t>(strata));
  };
  const uint64_t low = edge(k), high = edge(k + 1);
  const uint64_t bits = (uint64_t{random_u32(key, 2 * k)} << 32) | random_u32(key, 2 * k + 1);
  return static_cast<int64_t>(low + static_cast<uint64_t>((Wide(bits) * Wide(high - low)) >> 64));
}

// The draws that may fall into `shard`'s mass are [first, last); `before` is the mass of the shards in front of it.
struct ShardDraws {
  int64_t total = 0, before = 0, own = 0;
  int64_t first = 0, last = 0;

  // The place inside the shard's own mass, or -1: another shard's.
  int64_t place(const RandomKey& key, int64_t k, int64_t count) const {
    const int64_t at = place_of_draw(key, k, count, total) - before;
    return at >= 0 && at < own ? at : -1;
  }
};

ShardDraws draws_of_shard(std::span<const int64_t> sums, int shard, int64_t count);

}  // namespace tandem
