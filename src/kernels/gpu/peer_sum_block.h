// kernels/gpu/peer_sum_block.h -- what a block of the sum over peers does (kernels/peer_sum.h), on a GPU, on the CPU
// and in the emulator.
//
// `Threads` says who runs it: index(), count(), sync() and what the block shares. `Words` is how a block talks to the
// blocks of other members: store() of what others read, publish() of a flag after it, read() of one before it, load()
// of what others have stored, fence() between two words of which others write one and read the other. Words in host
// memory cost a trip over the bus each: one thread reads them for its block, and writes times once. Where a word lies
// near as well (PeerSum::near), that one is polled. Memory of others is far away too, so a thread has several loads
// under way before it stores.
#pragma once

#include <cstdint>

#include "kernels/float_bits.h"
#include "kernels/peer_sum.h"
#include "kernels/portable.h"
#include "kernels/update_decision.h"

#if defined(__CUDACC__)
#define TANDEM_PEER __device__ __forceinline__
#define TANDEM_UNROLL _Pragma("unroll")
#else
#define TANDEM_PEER TANDEM_HD
#define TANDEM_UNROLL
#endif

namespace tandem::peer {

inline constexpr int kWidth = 4;  // floats that a thread moves at once
inline constexpr int64_t kLine = 16;

struct alignas(16) Four {
  float x[kWidth];
};

// What the threads of a block share.
struct BlockMemory {
  uint64_t sequence = 0;
  int stage = 0;         // by its own flags: 0, 1: it had published, 2: it had reduced
  bool held = false;     // a sum ahead of this one was left unfinished
  bool gave_up = false;  // a wait
  // Of each member: where its slice begins, and this block's stretch of it.
  int64_t slice[kMostPeers] = {}, first[kMostPeers] = {}, last[kMostPeers] = {};
};

struct PeerStretch {
  int64_t first, last;
};

// As slice_of() in reduce/join.h: whole cache lines.
TANDEM_PEER PeerStretch part_of(int64_t n, int parts, int part) {
  const int64_t lines = (n + kLine - 1) / kLine;
  const int64_t first = lines * part / parts * kLine, last = lines * (part + 1) / parts * kLine;
  return {first < n ? first : n, last < n ? last : n};
}

// Once for all threads of a block: whole divisions of 64 bits are slow on a GPU.
template <class Threads>
TANDEM_PEER void find_stretches(const PeerSum& s, int block, BlockMemory& shared) {
  for (int m = Threads::index(); m < s.members; m += Threads::count()) {
    const PeerStretch slice = part_of(s.floats, s.members, m);
    const PeerStretch part = part_of(slice.last - slice.first, s.blocks, block);
    shared.slice[m] = slice.first;
    shared.first[m] = slice.first + part.first;
    shared.last[m] = slice.first + part.last;
  }
}

struct Added {
  TANDEM_PEER static float join(float a, float b) { return a + b; }
};
struct Joined {
  TANDEM_PEER static float join(float a, float b) { return float_of_bits(bits_of_float(a) | bits_of_float(b)); }
};

// Partial sums that wait, the newest at 0. All of them shift, so every index is a compile-time constant and the stack
// stays in registers.
template <int kPending, class How>
struct Stack {
  Four waiting[kPending];

  TANDEM_PEER void push(const Four& value, int merges) {
    Four sum = value;
    for (; merges > 0; --merges) {
      TANDEM_UNROLL
      for (int i = 0; i < kWidth; ++i) sum.x[i] = How::join(waiting[0].x[i], sum.x[i]);
      TANDEM_UNROLL
      for (int d = 0; d + 1 < kPending; ++d) waiting[d] = waiting[d + 1];
    }
    TANDEM_UNROLL
    for (int d = kPending - 1; d > 0; --d) waiting[d] = waiting[d - 1];
    waiting[0] = sum;
  }
};

// Four floats at `at`, or what is left of them before `last`.
template <class Words>
TANDEM_PEER Four load(const float* from, int64_t at, int64_t last) {
  if (at + kWidth <= last) return Words::load(reinterpret_cast<const Four*>(from + at));
  Four four{};
  for (int i = 0; i < kWidth && at + i < last; ++i) four.x[i] = Words::load(from + at + i);
  return four;
}

template <class Words>
TANDEM_PEER void store(float* to, const Four& four, int64_t at, int64_t last) {
  if (at + kWidth <= last) {
    Words::store(reinterpret_cast<Four*>(to + at), four);
    return;
  }
  for (int i = 0; i < kWidth && at + i < last; ++i) Words::store(to + at + i, four.x[i]);
}

TANDEM_PEER PeerFlag* flag_of(const PeerSum& s, int member, int block) {
  return s.flags + static_cast<int64_t>(member) * kMostPeerBlocks + block;
}

TANDEM_PEER PeerControl* control_of(const PeerSum& s, int member) {
  return reinterpret_cast<PeerControl*>(s.controls + member * kPeerPage);
}

// Until the word of every member's block speaks of this sum; false: it took too long, or the sum was abandoned, or,
// with `ends`, a member is closed to it. Without `ends` a near word is as good as the host's. With it the near one only
// tells when to look, since the launcher knows the host's alone; and where integers are read, which lie beside the
// host's.
template <class Threads, class Words>
TANDEM_PEER bool wait_for_all(const PeerSum& s, int block, uint64_t PeerFlag::*word, uint64_t sequence, bool ends) {
  constexpr int kFarPolls = 16, kNearPolls = 64;  // between looks at the clock and whether the sum was abandoned
  const uint64_t tag = peer_tag(s.generation, sequence, s.blocks);
  const bool by_host = ends || (block == 0 && s.counts + s.maxima > 0);
  bool& gave_up = Threads::shared().gave_up;
  if (Threads::index() == 0) gave_up = false;
  Threads::sync();
  for (int m = Threads::index(); m < s.members; m += Threads::count()) {
    const PeerFlag* near = s.near[m];
    uint64_t begin = 0;
    for (int polls = 1;; ++polls) {
      const bool looks = polls % (near ? kNearPolls : kFarPolls) == 0;
      if (near && Words::read(&(near[block].*word)) == tag) {
        if (!by_host) break;
        near = nullptr;
      }
      if ((!near || looks) && Words::read(&(flag_of(s, m, block)->*word)) == tag) break;
      if (!looks) continue;
      const uint64_t now = Words::now_ns();
      if (begin == 0) begin = now;
      if (Words::read(&s.control->abandon) != 0 || now - begin > static_cast<uint64_t>(s.wait_ns)) {
        gave_up = true;
        break;
      }
    }
    if (!ends) continue;
    Words::fence();  // between its flag and whether it is closed; the launcher has one the other way round
    if (!peer_had_part(Words::read(&control_of(s, m)->closed), sequence)) gave_up = true;
  }
  Threads::sync();
  return !gave_up;
}

template <class Threads, class Words>
TANDEM_PEER void say(const PeerSum& s, int block, uint64_t PeerFlag::*word, uint64_t tag) {
  Threads::sync();  // all threads have stored
  if (Threads::index() != 0) return;
  Words::publish(&(flag_of(s, s.me, block)->*word), s.near_mine ? &(s.near_mine[block].*word) : nullptr, tag);
}

// A thread's fours of floats in the other members' stretches, one member after the other, each rank from its own on.
template <class Threads>
struct FoursOfOthers {
  const PeerSum& s;
  const BlockMemory& stretches;
  int step = 1;
  int64_t four = Threads::index();  // in that member's stretch

  TANDEM_PEER FoursOfOthers(const PeerSum& sum, const BlockMemory& shared) : s(sum), stretches(shared) { settle(); }
  TANDEM_PEER bool more() const { return step < s.members; }
  TANDEM_PEER int member() const { return s.me + step < s.members ? s.me + step : s.me + step - s.members; }
  TANDEM_PEER int64_t at() const { return stretches.first[member()] + four * kWidth; }
  TANDEM_PEER void next() {
    four += Threads::count();
    settle();
  }
  TANDEM_PEER void settle() {
    for (; more(); ++step) {
      const int m = member();
      const int64_t fours = (stretches.last[m] - stretches.first[m] + kWidth - 1) / kWidth;
      if (four < fours) return;
      four -= fours;
    }
  }
};

// `load` and `store` take the member, its place in the vector, and where its stretch ends.
template <class Threads, class Load, class Store>
TANDEM_PEER void copy_of_others(const PeerSum& s, const Load& load, const Store& store) {
  constexpr int kAtOnce = 4;
  const BlockMemory& shared = Threads::shared();
  for (FoursOfOthers<Threads> next(s, shared); next.more();) {
    Four values[kAtOnce];
    int members[kAtOnce] = {};
    int64_t places[kAtOnce] = {};
    TANDEM_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      members[k] = -1;
      if (!next.more()) continue;
      members[k] = next.member();
      places[k] = next.at();
      values[k] = load(members[k], places[k], shared.last[members[k]]);
      next.next();
    }
    TANDEM_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (members[k] >= 0) store(values[k], places[k], shared.last[members[k]]);
  }
}

// The others' stretches of our partial sums, where the others read them.
template <class Threads, class Words>
TANDEM_PEER void show_partials(const PeerSum& s) {
  for (int k = 0; k < s.mine; ++k) {
    const float* const partial = s.partial[s.first + k];
    copy_of_others<Threads>(
        s, [partial](int, int64_t at, int64_t last) { return load<Words>(partial, at, last); },
        [&s, k](const Four& four, int64_t at, int64_t last) {
          for (float* const shown : s.shown)
            if (shown) store<Words>(shown + k * s.stride, four, at, last);
        });
  }
}

// As ShardRunner::read_sums().
TANDEM_PEER int64_t flag_of_shards(const PeerShardWords& words, int64_t flag) {
  for (int shard = 0; shard < words.shards; ++shard) {
    if (words.bad[shard] < 0) continue;
    int tensor = 0;
    while (tensor + 1 < words.tensors && words.starts[tensor + 1] <= words.bad[shard]) ++tensor;
    const int64_t found = nan_flag(words.named ? words.first + shard : -1, tensor);
    flag = found > flag ? found : flag;
  }
  return flag;
}

template <class Threads, class Words>
TANDEM_PEER void show_integers(const PeerSum& s) {
  int64_t* const shown = s.shown_integers + s.me * s.integer_stride;
  for (int i = Threads::index(); i < s.counts + s.maxima; i += Threads::count()) {
    int64_t value = s.integers ? s.integers[i] : 0;
    for (int shard = 0; i < s.counts && shard < s.of_shards.shards; ++shard)
      value += s.of_shards.counted[shard * s.counts + i];
    if (s.flag >= 0 && i == s.counts + s.flag) value = flag_of_shards(s.of_shards, value);
    Words::store(shown + i, value);
  }
}

// Loads from host memory, all members' under way at once.
template <class Threads, class Words>
TANDEM_PEER void add_integers(const PeerSum& s) {
  for (int i = Threads::index(); i < s.counts + s.maxima; i += Threads::count()) {
    int64_t shown[kMostPeers] = {};
    TANDEM_UNROLL
    for (int m = 0; m < kMostPeers; ++m)
      if (m < s.members) shown[m] = Words::load(s.shown_integers + m * s.integer_stride + i);
    int64_t total = shown[0];
    TANDEM_UNROLL
    for (int m = 1; m < kMostPeers; ++m)
      if (m < s.members) total = i < s.counts ? total + shown[m] : shown[m] > total ? shown[m] : total;
    s.total_integers[i] = total;
  }
}

// Loads of several partials are under way at once, of few partials those of several places: without it each would wait
// for the one before.
template <class Threads, class Words, int kPending, class How, int kPlaces>
TANDEM_PEER void add_up(const PeerSum& s) {
  constexpr int kBatch = 8 / kPlaces;
  const BlockMemory& shared = Threads::shared();
  const int64_t slice = shared.slice[s.me], last = shared.last[s.me];
  const int64_t stride = static_cast<int64_t>(Threads::count()) * kWidth;
  for (int64_t at = shared.first[s.me] + Threads::index() * kWidth; at < last; at += stride * kPlaces) {
    Stack<kPending, How> stacks[kPlaces];
    for (int begin = 0; begin < s.partials; begin += kBatch) {
      Four values[kPlaces][kBatch];
      TANDEM_UNROLL
      for (int k = 0; k < kBatch; ++k) TANDEM_UNROLL
      for (int p = 0; p < kPlaces; ++p)
        if (begin + k < s.partials && at + p * stride < last)
          values[p][k] = load<Words>(s.partial[begin + k], at + p * stride, last);
      TANDEM_UNROLL
      for (int k = 0; k < kBatch; ++k) TANDEM_UNROLL
      for (int p = 0; p < kPlaces; ++p)
        if (begin + k < s.partials && at + p * stride < last) stacks[p].push(values[p][k], s.merges[begin + k]);
    }
    TANDEM_UNROLL
    for (int p = 0; p < kPlaces; ++p) {
      const int64_t i = at + p * stride;
      if (i >= last) break;
      store<Words>(s.total, stacks[p].waiting[0], i, last);
      for (float* const shown : s.shown)
        if (shown) store<Words>(shown + s.slice_at, stacks[p].waiting[0], i - slice, last - slice);
    }
  }
}

template <class Threads, class Words>
TANDEM_PEER void gather(const PeerSum& s) {
  const BlockMemory& shared = Threads::shared();
  copy_of_others<Threads>(
      s,
      [&s, &shared](int m, int64_t at, int64_t last) {
        return load<Words>(s.slice[m], at - shared.slice[m], last - shared.slice[m]);
      },
      [&s](const Four& four, int64_t at, int64_t last) { store<Words>(s.total, four, at, last); });
}

// False: the block left before its end. `waited_ns`: of thread 0, until all had published.
template <class Threads, class Words, int kPending, class How, int kPlaces>
TANDEM_PEER bool go_on(const PeerSum& s, int block, uint64_t sequence, int stage, uint64_t& waited_ns) {
  const uint64_t tag = peer_tag(s.generation, sequence, s.blocks);
  if (stage < 2) {
    if (stage < 1) {
      show_partials<Threads, Words>(s);
      if (block == 0) show_integers<Threads, Words>(s);
      Words::reach(PeerPoint::kShown, block);
      say<Threads, Words>(s, block, &PeerFlag::published, tag);
    }
    Words::reach(PeerPoint::kPublished, block);
    const uint64_t begin = Words::now_ns();
    const bool all_published = wait_for_all<Threads, Words>(s, block, &PeerFlag::published, sequence, false);
    waited_ns = Words::now_ns() - begin;
    if (!all_published) return false;
    add_up<Threads, Words, kPending, How, kPlaces>(s);
    if (block == 0) add_integers<Threads, Words>(s);
    Words::reach(PeerPoint::kAdded, block);
    say<Threads, Words>(s, block, &PeerFlag::reduced, tag);
    Words::reach(PeerPoint::kReduced, block);
  }
  if (!wait_for_all<Threads, Words>(s, block, &PeerFlag::reduced, sequence, true)) return false;
  gather<Threads, Words>(s);
  Words::reach(PeerPoint::kGathered, block);
  return true;
}

// Of its own sum and flags, by one thread. Whether the sum is held may change while blocks of it leave: all threads of
// a block act on what this one saw.
template <class Words>
TANDEM_PEER void find_out(const PeerSum& s, int block, BlockMemory& shared) {
  shared.sequence = Words::read(&s.control->sequence) + static_cast<uint64_t>(s.ahead);
  shared.held = s.ahead > 0 && *s.bad == 0;
  const uint64_t tag = peer_tag(s.generation, shared.sequence, s.blocks);
  const PeerFlag* const mine = s.near_mine ? s.near_mine + block : flag_of(s, s.me, block);
  shared.stage = Words::read(&mine->reduced) == tag ? 2 : Words::read(&mine->published) == tag ? 1 : 0;
}

// `kPlaces`: of a vector, whose sums a thread makes at once; more than one where there are few partials.
template <class Threads, class Words, int kPending, class How = Added, int kPlaces = 1>
TANDEM_PEER void sum_block(const PeerSum& s, int block) {
  const uint64_t entered = Words::now_ns();
  BlockMemory& shared = Threads::shared();
  if (Threads::index() == 0) find_out<Words>(s, block, shared);
  find_stretches<Threads>(s, block, shared);
  Threads::sync();
  Words::reach(PeerPoint::kBegun, block);
  uint64_t waited_ns = 0;
  const bool ended =
      !shared.held && go_on<Threads, Words, kPending, How, kPlaces>(s, block, shared.sequence, shared.stage, waited_ns);
  if (Threads::index() != 0) return;
  if (!ended) s.control->unfinished[s.ahead][block] = 1;
  if (block == 0) {
    s.control->waited_ns[s.ahead] = waited_ns;
    s.control->took_ns[s.ahead] = Words::now_ns() - entered;
  }
  const bool flagged = block == 0 && s.flag >= 0 && ended && s.total_integers[s.counts + s.flag] != 0;
  if (s.bad && (!ended || flagged)) *s.bad = 0;
}

}  // namespace tandem::peer

#undef TANDEM_PEER
#undef TANDEM_UNROLL
