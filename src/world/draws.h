// world/draws.h -- the random numbers of one transition of one environment: an ordered reading of one Philox stream.
//
// The key names (seed, step, shard, site); each environment owns 256 indices of it, so what an environment draws
// depends on nothing but the key and its own number. Same bits on CPU and CUDA.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace tandem {

// The first of an environment's numbers, where somebody has drawn them before they are asked for.
struct DrawnAhead {
  static constexpr uint64_t kCount = 64;
  uint32_t word[kCount];
  float normal[kCount];  // of each word
};

struct Draws {
  static constexpr uint64_t kPerEnvironment = 256;

  RandomKey key;
  uint64_t next;
  PhiloxBlock block;
  const DrawnAhead* ahead = nullptr;

  TANDEM_HD static Draws of(const RandomKey& key, int64_t environment) {
    return {key, static_cast<uint64_t>(environment) * kPerEnvironment, {}};
  }
  TANDEM_HD bool is_ahead() const { return ahead != nullptr && next % kPerEnvironment < DrawnAhead::kCount; }
  TANDEM_HD uint32_t word() {
    if (is_ahead()) return ahead->word[next++ % kPerEnvironment];
    const uint32_t lane = static_cast<uint32_t>(next & 3);
    if (lane == 0) block = random_block(key, next >> 2);
    ++next;
    return lane == 0 ? block.word[0] : lane == 1 ? block.word[1] : lane == 2 ? block.word[2] : block.word[3];
  }
  TANDEM_HD float uniform() { return uniform_from_u32(word()); }  // [0, 1)
  TANDEM_HD float between(float low, float high) { return low + (high - low) * uniform(); }
  TANDEM_HD float normal() { return is_ahead() ? ahead->normal[next++ % kPerEnvironment] : normal_from_u32(word()); }
  TANDEM_HD bool chance(float probability) { return uniform() < probability; }
  TANDEM_HD int32_t below(int32_t n) {
    return static_cast<int32_t>((uint64_t{word()} * static_cast<uint32_t>(n)) >> 32);
  }
};

TANDEM_HD float at_most(float x, float limit) { return x < limit ? x : limit; }
TANDEM_HD float at_least(float x, float limit) { return x > limit ? x : limit; }
TANDEM_HD float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

}  // namespace tandem
