// world/draws.h -- the random numbers of one transition of one environment: an ordered reading of one Philox stream.
//
// The key names (seed, step, shard, site); each environment owns 256 indices of it, so what an environment draws
// depends on nothing but the key and its own number. Same bits on CPU and CUDA.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace tandem {

TANDEM_HD_NOINLINE PhiloxBlock block_noinline(uint64_t seed, uint64_t step, uint32_t shard, uint32_t site,
                                              uint64_t block) {
  return random_block({seed, step, shard, site}, block);
}
TANDEM_HD_NOINLINE float normal_noinline(uint32_t word) { return normal_from_u32(word); }

// Draws of an environment, from the word() and normal() of `Own`.
template <class Own>
struct DrawsOf {
  TANDEM_HD float uniform() { return uniform_from_u32(own().word()); }  // [0, 1)
  TANDEM_HD float between(float low, float high) { return low + (high - low) * uniform(); }
  TANDEM_HD bool chance(float probability) { return uniform() < probability; }
  TANDEM_HD int32_t below(int32_t n) {
    return static_cast<int32_t>((uint64_t{own().word()} * static_cast<uint32_t>(n)) >> 32);
  }

 private:
  TANDEM_HD Own& own() { return static_cast<Own&>(*this); }
};

struct Draws : DrawsOf<Draws> {
  static constexpr uint64_t kPerEnvironment = 256;

  RandomKey key;
  uint64_t next;
  PhiloxBlock block{};

  TANDEM_HD Draws(const RandomKey& k, uint64_t first) : key(k), next(first) {}
  TANDEM_HD static Draws of(const RandomKey& key, int64_t environment) {
    return {key, static_cast<uint64_t>(environment) * kPerEnvironment};
  }
  TANDEM_HD uint32_t word() {
    const uint32_t lane = static_cast<uint32_t>(next & 3);
    if (lane == 0) block = block_noinline(key.seed, key.step, key.shard, key.site, next >> 2);
    ++next;
    return lane == 0 ? block.word[0] : lane == 1 ? block.word[1] : lane == 2 ? block.word[2] : block.word[3];
  }
  TANDEM_HD float normal() { return normal_noinline(word()); }
};

// An environment's random numbers, the first of which were drawn in advance (by other threads of a warp).
struct DrawnAhead {
  // What a step needs, and the beginning of an episode (the six environments need up to 43 and 88).
  static constexpr uint32_t kOfStep = 64, kOfReset = 96;
  uint64_t seed, step, first;  // of their key, and where they begin
  uint32_t shard, site;
  uint32_t word[kOfReset];
  float normal[kOfReset];  // of each word

  TANDEM_HD RandomKey key() const { return {seed, step, shard, site}; }
};
TANDEM_HD_NOINLINE uint32_t word_beyond(const DrawnAhead* ahead, uint32_t number) {
  return random_u32(ahead->key(), ahead->first + number);
}
TANDEM_HD_NOINLINE float normal_beyond(const DrawnAhead* ahead, uint32_t number) {
  return random_normal(ahead->key(), ahead->first + number);
}

struct DrawsAhead : DrawsOf<DrawsAhead> {
  const DrawnAhead* ahead;
  uint32_t count, next = 0;

  TANDEM_HD DrawsAhead(const DrawnAhead& drawn, uint32_t drawn_count) : ahead(&drawn), count(drawn_count) {}
  TANDEM_HD uint32_t word() {
    const uint32_t number = next++;
    return number < count ? ahead->word[number] : word_beyond(ahead, number);
  }
  TANDEM_HD float normal() {
    const uint32_t number = next++;
    return number < count ? ahead->normal[number] : normal_beyond(ahead, number);
  }
};

TANDEM_HD float at_most(float x, float limit) { return x < limit ? x : limit; }
TANDEM_HD float at_least(float x, float limit) { return x > limit ? x : limit; }
TANDEM_HD float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

}  // namespace tandem
