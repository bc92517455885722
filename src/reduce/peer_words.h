// reduce/peer_words.h -- the words of a sum between GPUs (kernels/peer_sum.h) in the memory that its members share: the
// flags of all members, each member's control on a page of its own, and each member's integers: as it shows them, as
// its host gave them, and as they are in total.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/peer_sum.h"

namespace tandem {

struct PeerWords {
  // `memory`: zeroed at the start; `integers`: the most of any sum.
  PeerWords(std::span<std::byte> memory, int members, int64_t integers);
  static uint64_t bytes(int members, int64_t integers);

  PeerFlag* flags() const;
  PeerControl& control(int member) const;
  int64_t* shown_integers() const;  // of member 0; the next member's are integer_stride further
  int64_t* own_integers(int member) const;
  int64_t* total_integers(int member) const;

  // The sequence number up to which a member of a generation did its part; nothing if it did none.
  std::optional<int64_t> mark(int member, uint64_t generation) const;
  // For the launcher, of a dead member: the same, and from now on nobody ends a sum with it, so the answer is final
  // though its GPU may go on; until decide() has told up to which sum all go.
  std::optional<int64_t> close(int member, uint64_t generation) const;
  void decide(int64_t cut) const;  // after whoever waits can know of it (Watch)
  bool undecided() const;          // somebody is closed, and it was not told

  std::span<std::byte> memory;
  int members;
  int64_t integer_stride;
};

}  // namespace tandem
