// reduce/peer_words.h -- the words of a sum between GPUs (kernels/peer_sum.h) in the memory that its members share: the
// flags of all members, then each member's control, on a page of its own.
#pragma once

#include <cstdint>

#include "kernels/peer_sum.h"

namespace tandem {

inline constexpr uint64_t kPeerPage = 4096;

inline uint64_t peer_flags_bytes(int members) {
  const uint64_t bytes = static_cast<uint64_t>(members) * kMostPeerBlocks * sizeof(PeerFlag);
  return (bytes + kPeerPage - 1) / kPeerPage * kPeerPage;
}

inline uint64_t peer_words_bytes(int members) {
  static_assert(sizeof(PeerControl) <= kPeerPage);
  return peer_flags_bytes(members) + static_cast<uint64_t>(members) * kPeerPage;
}

}  // namespace tandem
