// kernels/peer_sum.h -- one vector and some integers summed over all GPUs of a machine, by a kernel on each that reads
// the others' memory.
//
// Every member owns one slice of the vector. It shows its partial sums to the others, adds up its slice of everybody's
// along the tree (reduce/sum_tree.h), shows the result, and gathers the other slices. Each block does this for its own
// stretch of every slice and waits for the same block of the others alone, by two words (PeerFlag):
//   show my partials | published | wait for all | add up my slice, show it | reduced | wait for all | gather
// Why one buffer of each is enough: partials are shown anew by the next sum, after this one ended here, when all had
// `reduced`, so nobody reads them any more. A slice is written again once all have `published` the next sum, which each
// does after it had gathered this one. Slices of all sums have one place, in which no sum shows partials: who is late
// may still gather this one's while the next one's partials are shown.
// Integers go with block 0: all are shown to everybody, and each member adds up all of them.
// Of sums that are queued together, one that was left unfinished holds those behind it: they leave at once.
// Who has `reduced` in all its blocks has done its part: the others can end this sum without it, and none of them ends
// it before. So it is the mark of completion (reduce/peer_words.h), and what follows on the GPU may use the total.
// A dead member's GPU may go on for a while, so its flags alone don't tell what the launcher found there. Before it
// looks, it closes the member (PeerControl::closed). A block looks for closed members after the last flag that it needs
// is there, and does not end a sum that such a member may not have had part in.
// A wait is bounded. A block that waited too long leaves, and counts itself unfinished; the same call again goes on
// where the block stood: what its flags say is done is not done twice, since others may have gone on by it.
//
// Flags hold the generation, the sequence number and the number of blocks, and are compared for equality, so no flag of
// another sum or of an older generation is ever believed. They are stored after the data they speak of and read before
// it (release and acquire, at the scope of the system). They lie in host memory, where the launcher finds them after a
// death; and once more on their owner's GPU, where others poll them if they reach it. CPU and GPU give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/gpu/kernel_tables.h"
#include "kernels/portable.h"

namespace tandem {

inline constexpr int kMostPeers = 16;
inline constexpr int kMostPeerPartials = 64;
inline constexpr int kMostPeerBlocks = 64;
inline constexpr int kMostPeerPending = 8;  // partial sums that wait at once, along the tree
inline constexpr int kMostPeerSums = 4;     // that are queued together
inline constexpr int64_t kPeerPage = 4096;  // a member's control has its own

// Of one block of one member; written by that block alone.
struct PeerFlag {
  uint64_t published = 0, reduced = 0;
};

// A member's own, in host memory that its GPU reaches.
struct PeerControl {
  uint64_t sequence = 0;  // of the sum to do; of several that are queued together, of the first
  uint64_t abandon = 0;   // not 0: every wait ends at once
  uint64_t closed = 0;    // by the launcher: 0 | kPeerClosed | peer_closed_up_to()
  // Of block 0, by sum, in its last call: until all had published, and all of it.
  uint64_t waited_ns[kMostPeerSums] = {}, took_ns[kMostPeerSums] = {};
  uint32_t unfinished[kMostPeerSums][kMostPeerBlocks] = {};  // not 0: the block left before its end
};

// What the shards on this GPU left there, added to the integers that the host gives.
struct PeerShardWords {
  int32_t shards = 0, first = 0;  // of the job's, from `first` on; 0: all integers come from the host
  int32_t tensors = 0;
  bool named = true;                 // else a raised flag names no shard
  const int64_t* counted = nullptr;  // [shards][counts]
  const int64_t* bad = nullptr;      // [shards]: where a NaN or Inf lies in a shard's vector, or -1
  const int64_t* starts = nullptr;   // [tensors]: where a vector's tensors begin, the first at 0
};

struct PeerSum {
  int members = 1, me = 0;
  int blocks = 1;                                // the same on all members
  int partials = 1, first = 0;                   // of all members; of them ours begin at `first`
  int mine = 1;                                  // how many are ours
  int pending = 1;                               // see tree_depth()
  int ahead = 0;                                 // of sums that are queued together, so many come before it
  bool bits = false;                             // numbers are joined by OR: one partial has them, the others zeros
  uint64_t generation = 0;                       // below 2^24
  int64_t floats = 0;                            // of a vector; may be 0
  int32_t counts = 0, maxima = 0;                // integers: the first are summed, of the rest the largest wins
  int32_t flag = -1;                             // of the maxima, one that must be 0 for `bad` to stay; or none
  int64_t stride = 0;                            // between the vectors that we show
  int64_t wait_ns = 0;                           // the longest a block waits before it leaves
  uint8_t merges[kMostPeerPartials] = {};        // after each partial, as SumTree::merges()
  const float* partial[kMostPeerPartials] = {};  // whole vectors, as this member reads them; ours where they lie
  const float* slice[kMostPeers] = {};           // the others' slices of the total, each from its own first float
  // Where others read ours, twice if some reach our GPU and some do not; null: nobody reads there. First our partials;
  // our slice at `slice_at`, the same in all sums, where no sum has a partial.
  float* shown[2] = {};
  int64_t slice_at = 0;
  float* total = nullptr;
  const int64_t* integers = nullptr;  // ours, as the host gives them; null: none
  PeerShardWords of_shards;           // to be added to `integers`
  int64_t* shown_integers = nullptr;  // [members][integer_stride], in host memory that all GPUs reach
  int64_t integer_stride = 0;
  int64_t* total_integers = nullptr;
  // Set to 0 where the sum did not end, or the flag was raised; else left alone. One that has others `ahead` of it does
  // nothing where it is 0.
  int64_t* bad = nullptr;
  PeerFlag* flags = nullptr;  // [members][kMostPeerBlocks], in host memory
  // The same flags once more, where a trip to the host is saved: those of other members as this GPU reads them on
  // theirs, null where it does not; ours, beside our area, where others may read them. All or none of a member's
  // blocks.
  const PeerFlag* near[kMostPeers] = {};
  PeerFlag* near_mine = nullptr;
  std::byte* controls = nullptr;  // [members], a page each
  PeerControl* control = nullptr;
};

inline constexpr int kPeerBlockBits = 7, kPeerSequenceBits = 33;
static_assert(kMostPeerBlocks < 1 << kPeerBlockBits && kPeerBlockBits + kPeerSequenceBits == 40);

TANDEM_HD uint64_t peer_tag(uint64_t generation, uint64_t sequence, int blocks) {
  return generation << 40 | (sequence + 1) << kPeerBlockBits | static_cast<uint64_t>(blocks);
}

inline constexpr uint64_t kPeerClosed = 1;  // nobody ends a sum with this member until it is known how far it got
// It has its part in sums up to this one, which may be -1, and in none after it.
inline uint64_t peer_closed_up_to(int64_t sequence) { return static_cast<uint64_t>(sequence + 2) << 1; }
TANDEM_HD bool peer_had_part(uint64_t closed, uint64_t sequence) {
  return closed == 0 || (closed != kPeerClosed && sequence + 2 <= closed >> 1);
}

struct PeerKernels {
  static constexpr KernelTableId kId{"peer_sum", 5};
  static const PeerKernels& cpu();

  void (*queue)(const PeerSum& sum, void* stream);
  // That this device runs at once, of any kernel of these. It loads them: none is loaded while another one waits.
  int (*most_blocks)();
};

// How many blocks a sum of so many floats is worth, at most `most`.
int peer_blocks(int64_t floats, int members, int most);

// For tests: called by the CPU's kernel when a block has come so far.
enum class PeerPoint { kBegun, kShown, kPublished, kAdded, kReduced, kGathered };
extern std::function<void(PeerPoint, int block)> at_peer_points;

namespace cuda {
void queue_peer_sum(const PeerSum& sum, void* stream);
int most_peer_blocks();
}  // namespace cuda

}  // namespace tandem
