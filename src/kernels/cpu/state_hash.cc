#include "kernels/cpu/state_hash.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_dispatch.h"
#include "kernels/state_hash_math.h"

namespace tandem {
namespace {

__attribute__((always_inline)) inline uint64_t hash_block(const unsigned char* data, int64_t bytes,
                                                          uint64_t first_position) {
  uint64_t sum = 0;
  const int64_t words = bytes / 8;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word;
    __builtin_memcpy(&word, data + 8 * i, 8);
    sum += hash_word(word, first_position + static_cast<uint64_t>(i));
  }
  if (bytes % 8 != 0) {
    uint64_t word = 0;  // the rest of a cut last word counts as zeros; the length is folded in at the end
    std::memcpy(&word, data + 8 * words, static_cast<size_t>(bytes % 8));
    sum += hash_word(word, first_position + static_cast<uint64_t>(words));
  }
  return sum;
}

}  // namespace

uint64_t fold_hash(uint64_t so_far, uint64_t next) { return hash_fold(so_far, next); }

std::vector<uint64_t> block_hashes(const void* data, int64_t bytes, CpuVariant variant) {
  std::vector<uint64_t> hashes(static_cast<size_t>(hash_block_count(bytes)));
  const auto* begin = static_cast<const unsigned char*>(data);
  for (size_t block = 0; block < hashes.size(); ++block) {
    const int64_t offset = static_cast<int64_t>(block) * kHashBlockBytes;
    const int64_t length = std::min(kHashBlockBytes, bytes - offset);
    hashes[block] = run_variant(variant, [=]() TANDEM_INLINE_LAMBDA {
      return hash_block(begin + offset, length, static_cast<uint64_t>(offset / 8));
    });
  }
  return hashes;
}

uint64_t state_hash(const void* data, int64_t bytes, CpuVariant variant) {
  uint64_t hash = 0;
  for (uint64_t block : block_hashes(data, bytes, variant)) hash = hash_fold(hash, block);
  return hash_fold(hash, static_cast<uint64_t>(bytes));
}

}  // namespace tandem
