// kernels/state_hash_math.h -- a word's share of a block's hash and the folding of blocks, shared by CPU and CUDA.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace tandem {

// A bijection (Stafford's 13th variant of the MurmurHash3 finaliser, as in SplitMix64).
TANDEM_HD uint64_t hash_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// `position` counts the words of the whole buffer, so equal blocks in other places have other hashes.
TANDEM_HD uint64_t hash_word(uint64_t word, uint64_t position) {
  return hash_mix(word + (position + 1) * 0x9E3779B97F4A7C15u);
}

TANDEM_HD uint64_t hash_fold(uint64_t so_far, uint64_t next) {
  return hash_mix((so_far ^ next) * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u);
}

}  // namespace tandem
