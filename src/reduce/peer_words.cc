#include "reduce/peer_words.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace tandem {
namespace {

static_assert(sizeof(PeerControl) <= kPeerPage);

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPeerPage - 1) / kPeerPage * kPeerPage; }
uint64_t flag_bytes(int members) {
  return whole_pages(static_cast<uint64_t>(members) * kMostPeerBlocks * sizeof(PeerFlag));
}
int64_t stride_of(int64_t integers) { return (integers + 15) / 16 * 16; }
uint64_t integer_bytes(int members, int64_t integers) {
  return whole_pages(static_cast<uint64_t>(members * stride_of(integers)) * sizeof(int64_t));
}

}  // namespace

PeerWords::PeerWords(std::span<std::byte> m, int n, int64_t integers)
    : memory(m), members(n), integer_stride(stride_of(integers)) {
  if (memory.size() < bytes(members, integers)) throw std::logic_error("too little room for a link's words");
}

uint64_t PeerWords::bytes(int members, int64_t integers) {
  return flag_bytes(members) + static_cast<uint64_t>(members * kPeerPage) + 3 * integer_bytes(members, integers);
}

PeerFlag* PeerWords::flags() const { return reinterpret_cast<PeerFlag*>(memory.data()); }

PeerControl& PeerWords::control(int member) const {
  return *reinterpret_cast<PeerControl*>(memory.data() + flag_bytes(members) + member * kPeerPage);
}

int64_t* PeerWords::shown_integers() const {
  return reinterpret_cast<int64_t*>(memory.data() + flag_bytes(members) + members * kPeerPage);
}

int64_t* PeerWords::own_integers(int member) const {
  return shown_integers() + integer_bytes(members, integer_stride) / sizeof(int64_t) + member * integer_stride;
}

int64_t* PeerWords::total_integers(int member) const {
  return own_integers(member) + integer_bytes(members, integer_stride) / sizeof(int64_t);
}

std::optional<int64_t> PeerWords::close(int member, uint64_t generation) const {
  uint64_t open = 0;
  std::atomic_ref(control(member).closed).compare_exchange_strong(open, kPeerClosed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return mark(member, generation);
}

void PeerWords::decide(int64_t cut) const {
  for (int m = 0; m < members; ++m)
    if (std::atomic_ref<uint64_t> closed(control(m).closed); closed.load() != 0) closed.store(peer_closed_up_to(cut));
}

bool PeerWords::undecided() const {
  for (int m = 0; m < members; ++m)
    if (std::atomic_ref(control(m).closed).load() == kPeerClosed) return true;
  return false;
}

// Sums of one generation follow each other on a member's GPU, and none begins before the last one's blocks have ended:
// so one of block 0 and the others stands in the newest sum, the rest there or in the one before.
std::optional<int64_t> PeerWords::mark(int member, uint64_t generation) const {
  PeerFlag* const mine = flags() + static_cast<int64_t>(member) * kMostPeerBlocks;
  uint64_t tags[kMostPeerBlocks] = {}, newest = 0;
  for (int block = 0; block < kMostPeerBlocks; ++block) {
    const uint64_t tag = std::atomic_ref(mine[block].reduced).load(std::memory_order_acquire);
    if (tag != 0 && tag >> 40 == generation) tags[block] = tag;
    newest = std::max(newest, tags[block]);
  }
  if (newest == 0) return std::nullopt;
  const auto blocks = static_cast<int>(newest & ((1 << kPeerBlockBits) - 1));
  const int64_t sequence = static_cast<int64_t>((newest & ((uint64_t{1} << 40) - 1)) >> kPeerBlockBits) - 1;
  if (std::all_of(tags, tags + blocks, [newest](uint64_t tag) { return tag == newest; })) return sequence;
  return sequence > 0 ? std::optional(sequence - 1) : std::nullopt;
}

}  // namespace tandem
