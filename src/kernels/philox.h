// kernels/philox.h -- the one source of randomness: Philox4x32-10, a pure function of (seed, step, shard, site, index).
//
// No state is kept, so a number does not depend on who drew before, on the device, or on the order of shards. The
// layout below is part of what a run's bits depend on and never changes:
//   key      seed lo32, seed hi32
//   counter  block lo32 | step lo32 | site << 16 | shard | step hi16 << 16 | block hi16,   block = index / 4
// and index % 4 picks one of the block's four words. So site and shard are below 2^16, step below 2^48, index below
// 2^50. A site is a place in a recipe that draws (dropout of layer 3, epsilon, ...); two places never share one.
#pragma once

#include <cstdint>

#include "kernels/normal_quantile.h"
#include "kernels/portable.h"

namespace tandem {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t site = 0;
};

struct PhiloxBlock {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

// 32 x 32 -> 64 bits. mul.wide.u32 on a GPU: nvcc 13.0 compiles the plain expression to one instruction more.
TANDEM_HD uint64_t mul_wide(uint32_t x, uint32_t y) {
#if defined(__CUDA_ARCH__)
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(x), "r"(y));
  return product;
#else
  return uint64_t{x} * y;
#endif
}

// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (2011); ten rounds.
TANDEM_HD PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = mul_wide(kPhiloxMultiplier0, c0);
    const uint64_t product1 = mul_wide(kPhiloxMultiplier1, c2);
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

TANDEM_HD PhiloxBlock random_counter(const RandomKey& key, uint64_t block) {
  return {{static_cast<uint32_t>(block), static_cast<uint32_t>(key.step), (key.site << 16) | (key.shard & 0xFFFFu),
           (static_cast<uint32_t>(key.step >> 32) << 16) | (static_cast<uint32_t>(block >> 32) & 0xFFFFu)}};
}

TANDEM_HD PhiloxBlock random_block(const RandomKey& key, uint64_t block) {
  return philox4x32(random_counter(key, block), static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
}

TANDEM_HD uint32_t random_u32(const RandomKey& key, uint64_t index) {
  return random_block(key, index >> 2).word[index & 3];
}

// The upper 24 bits: a float holds them exactly, so 1 is never reached by rounding.
TANDEM_HD float uniform_from_u32(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// [0, 1), multiples of 2^-24.
TANDEM_HD float random_uniform(const RandomKey& key, uint64_t index) {
  return uniform_from_u32(random_u32(key, index));
}

// Standard normal by inversion, one word a number, so that index i stays number i. Within +-6.23.
TANDEM_HD float random_normal(const RandomKey& key, uint64_t index) { return normal_from_u32(random_u32(key, index)); }

// [0, n), n > 0. By multiply-high without rejection, so that one index is one number: each value's probability is off
// from 1/n by less than 2^-32, i.e. by a share n / 2^32 of itself (n = 1,000: 2.4e-7).
TANDEM_HD uint32_t random_below(const RandomKey& key, uint64_t index, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{random_u32(key, index)} * n) >> 32);
}

}  // namespace tandem
