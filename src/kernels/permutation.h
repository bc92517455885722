// kernels/permutation.h -- a shuffle of [0, n) that is computed, not stored: at(i) is the i-th sample of an epoch.
//
// A bijection for every n, fixed by (n, seed, epoch); any worker can ask for any position at any time, and a resumed
// run needs no saved order. Feistel rounds on the bits of n - 1, walked until the value falls below n (fewer than two
// rounds of it on average, as the domain is less than 2 n).
#pragma once

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/portable.h"

namespace tandem {

class Permutation {
 public:
  // n in [0, 2^63]; with n = 0 there is nothing to ask for.
  TANDEM_HD Permutation(uint64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
    int bits = 0;
    while (bits < 63 && (uint64_t{1} << bits) < n) ++bits;
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1;
    high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
    for (int pair = 0; pair < kRounds / 2; ++pair) {
      const PhiloxBlock words = philox4x32({{static_cast<uint32_t>(pair), static_cast<uint32_t>(epoch), kSite << 16,
                                             static_cast<uint32_t>(epoch >> 32)}},
                                           static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
      keys_[2 * pair] = uint64_t{words.word[1]} << 32 | words.word[0];
      keys_[2 * pair + 1] = uint64_t{words.word[3]} << 32 | words.word[2];
    }
  }

  TANDEM_HD uint64_t size() const { return n_; }

  // i must be below n.
  TANDEM_HD uint64_t at(uint64_t i) const {
    do {
      i = shuffle(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr int kRounds = 12;
  static constexpr uint32_t kSite = 0xFFFFu;  // of philox.h's counter; reserved for shuffles, no recipe draws there

  // Each half round adds a keyed function of one half to the other, which can be undone: so the whole is a bijection.
  TANDEM_HD uint64_t shuffle(uint64_t value) const {
    uint64_t low = value & low_mask_, high = value >> low_bits_;
    for (int round = 0; round < kRounds; round += 2) {
      low ^= mix(high, keys_[round]) & low_mask_;
      high ^= mix(low, keys_[round + 1]) & high_mask_;
    }
    return high << low_bits_ | low;
  }

  TANDEM_HD static uint64_t mix(uint64_t half, uint64_t key) {
    uint64_t x = (half + key) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  uint64_t n_, low_mask_, high_mask_;
  uint64_t keys_[kRounds];
  int low_bits_;
};

}  // namespace tandem
