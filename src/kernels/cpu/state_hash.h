// kernels/cpu/state_hash.h -- a 64-bit hash of a buffer, by which ranks check that they hold the same bits.
//
// Meant against accidents (a flaky memory, a bug), not against an adversary; weights that leave the machine are signed
// by SHA-256. A word's share is a bijection of the word, salted by its position, and shares are added modulo 2^64: a
// change of one word is always seen, and any order of work, on any device, gives the same hash. Blocks of 1 MiB are
// folded in order, and their own hashes show where two buffers differ.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/cpu_variant.h"

namespace tandem {

inline constexpr int64_t kHashBlockBytes = int64_t{1} << 20;

inline constexpr int64_t hash_block_count(int64_t bytes) { return (bytes + kHashBlockBytes - 1) / kHashBlockBytes; }

uint64_t state_hash(const void* data, int64_t bytes, CpuVariant variant = best_cpu_variant());
std::vector<uint64_t> block_hashes(const void* data, int64_t bytes, CpuVariant variant = best_cpu_variant());
// The hash of several buffers: fold(fold(0, hash of the first), hash of the second) ...
uint64_t fold_hash(uint64_t so_far, uint64_t next);

}  // namespace tandem
