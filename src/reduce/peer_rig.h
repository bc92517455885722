// reduce/peer_rig.h -- for tests: the kernel of the sum over peers in the emulator, between real processes, on memory
// that is weaker than a GPU's: what a thread stores for others reaches them late and in any order, except before a flag
// that is published; and what it loads of others may be what stood there when its block began, except after a flag that
// was read.
#pragma once

#include <signal.h>

#include "kernels/gpu/intrinsics.h"
#include "kernels/gpu/peer_sum_block.h"
#include "kernels/tree_kernels.h"
#include "reduce/combine_trial.h"
#include "reduce/exact_sum.h"
#include "reduce/join.h"
#include "reduce/peer_words.h"

namespace tandem::peer_rig {

using namespace trial;

enum class PeerFault { kNone, kFlagBeforeData, kNoFence, kNoAcquire, kAnyGeneration, kNoSecondWait };

struct EmulatedThreads {
  static constexpr int kCount = 64;
  static int index() { return static_cast<int>(threadIdx.x); }
  static int count() { return kCount; }
  static void sync() { __syncthreads(); }
  static peer::BlockMemory& shared() {
    static peer::BlockMemory all;
    return all;
  }
};

// Stores that nobody else sees yet.
struct Late {
  void* to;
  uint64_t value;
  int bytes;
};
inline std::vector<Late> late;
// What was loaded before it was asked for: all of the members' memory as it stood then; empty: nothing.
struct Early {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  std::vector<std::byte> seen;
  void load_all() { seen.assign(begin, begin + bytes); }
  template <class T>
  T load(const T* from) const {
    T value;
    const std::byte* at = reinterpret_cast<const std::byte*>(from);
    if (!seen.empty() && at >= begin && at < begin + bytes) at = seen.data() + (at - begin);
    std::memcpy(&value, at, sizeof value);
    return value;
  }
};
inline Early early;
inline std::span<const uint64_t> flag_words, own_flag_words, near_words, own_near_words;
// Numbers of a member's own.
struct RigDice {
  uint64_t state = 0;
  void seed(uint64_t s) { state = s; }
  uint32_t operator()() { return static_cast<uint32_t>(mix(++state) >> 32); }
};
inline RigDice dice;
inline uint64_t this_generation = 0;
inline std::atomic<int>* all_gathered = nullptr;  // how often each member's block 0 has gathered
inline int this_member = 0;
inline int die_at_block = -1, die_in_sum = -1;
inline int64_t die_at_step = -1;
inline PeerPoint die_at = PeerPoint::kBegun;

inline void arrive(const Late& store) {
  if (store.bytes == 4)
    std::memcpy(store.to, &store.value, 4);
  else
    std::atomic_ref(*static_cast<uint64_t*>(store.to)).store(store.value, std::memory_order_release);
}
inline void some_arrive(size_t rest) {
  while (late.size() > rest) {
    const size_t i = dice() % late.size();
    arrive(late[i]);
    late[i] = late.back();
    late.pop_back();
  }
}

template <PeerFault kFault>
struct WeakWords {
  static void store(peer::Four* to, const peer::Four& four) {
    for (int i = 0; i < peer::kWidth; ++i) store(&to->x[i], four.x[i]);
  }
  static void store(float* to, float x) { late.push_back({to, std::bit_cast<uint32_t>(x), 4}); }
  static void store(int64_t* to, int64_t x) { late.push_back({to, static_cast<uint64_t>(x), 8}); }
  template <class T>
  static T load(const T* from) {
    return early.load(from);
  }
  // The two words arrive in any order.
  static void publish(uint64_t* word, uint64_t* near, uint64_t tag) {
    std::array<uint64_t*, 2> words = {word, near};
    if (dice() % 2 == 0) std::swap(words[0], words[1]);
    if (kFault != PeerFault::kFlagBeforeData && kFault != PeerFault::kNoFence) some_arrive(0);
    for (uint64_t* const to : words) {
      if (!to) continue;
      if (kFault == PeerFault::kNoFence)
        late.push_back({to, tag, 8});
      else
        arrive({to, tag, 8});
    }
    if (kFault == PeerFault::kFlagBeforeData) {
      sched_yield();
      some_arrive(0);
    }
  }
  static uint64_t read(const uint64_t* word) {
    if (!late.empty() && dice() % 4 == 0) some_arrive(late.size() - 1 - dice() % late.size());
    if (kFault == PeerFault::kNoSecondWait && is_reduced_of_another(word)) --word;  // its `published`
    const uint64_t value = std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
    if (kFault != PeerFault::kNoAcquire) early.seen.clear();
    if (kFault != PeerFault::kAnyGeneration || value >> 40 == 0) return value;
    return this_generation << 40 | (value & ((uint64_t{1} << 40) - 1));
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  // It shows its slice once member 0 has gathered it: without the fault that would be never.
  static void hold_member_1(PeerPoint point) {
    if (point == PeerPoint::kGathered) ++all_gathered[this_member];
    while (point == PeerPoint::kAdded && this_member == 1 && all_gathered[0] == 0) sched_yield();
  }
  static bool is_reduced_of_another(const uint64_t* word) {
    const auto within = [word](std::span<const uint64_t> words) {
      return word >= words.data() && word < words.data() + words.size();
    };
    const auto of_another = [&](std::span<const uint64_t> words, std::span<const uint64_t> own) {
      return within(words) && !within(own) && (word - words.data()) % 2 == 1;
    };
    return of_another(flag_words, own_flag_words) || of_another(near_words, own_near_words);
  }
  static uint64_t now_ns() {
    sched_yield();
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  static void reach(PeerPoint point, int block) {
    if (point == PeerPoint::kBegun && threadIdx.x == 0) early.load_all();
    if (kFault == PeerFault::kNoSecondWait && block == 0 && threadIdx.x == 0) hold_member_1(point);
    if (block == die_at_block && point == die_at && threadIdx.x == 0) {
      some_arrive(late.size() / 2);
      raise(SIGKILL);
    }
  }
};

template <PeerFault kFault>
void run_emulated(const PeerSum& sum) {
  cuda_on_cpu::launch(dim3(static_cast<unsigned>(sum.blocks)), dim3(EmulatedThreads::kCount), [&sum] {
    const int block = static_cast<int>(blockIdx.x);
    if (sum.bits)
      peer::sum_block<EmulatedThreads, WeakWords<kFault>, 2, peer::Joined, 2>(sum, block);
    else if (sum.partials <= 4)
      peer::sum_block<EmulatedThreads, WeakWords<kFault>, 4, peer::Added, 2>(sum, block);
    else
      peer::sum_block<EmulatedThreads, WeakWords<kFault>, kMostPeerPending>(sum, block);
  });
  some_arrive(0);  // a kernel's end makes everything seen
}

// Members that share areas and words, and what each of them makes of some sums.
struct Rig {
  Rig(int shards_, std::vector<ShardRange> ranges_, int64_t floats_, uint64_t generation_ = 5)
      : shards(shards_), ranges(std::move(ranges_)), floats(floats_), generation(generation_) {
    stride = (floats + 15) / 16 * 16 + 16;
    area_floats = (Join<float>(SumTree(shards), ranges).partials() + 1) * stride;
    bytes = PeerWords::bytes(members(), kIntegers) + near_bytes() +
            static_cast<uint64_t>(members()) * area_floats * sizeof(float) + 4096;
    memory = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Rig() { munmap(memory, bytes); }
  int members() const { return static_cast<int>(ranges.size()); }
  PeerWords words() const { return {{memory, PeerWords::bytes(members(), kIntegers)}, members(), kIntegers}; }
  PeerFlag* flags() const { return words().flags(); }
  // The flags once more. Some members are far from each other, as GPUs that don't reach each other's memory.
  PeerFlag* near() const { return reinterpret_cast<PeerFlag*>(memory + PeerWords::bytes(members(), kIntegers)); }
  uint64_t near_bytes() const { return static_cast<uint64_t>(members()) * kMostPeerBlocks * sizeof(PeerFlag); }
  static bool reaches(int me, int m) { return (me + m) % 3 != 2; }
  // This process is that member.
  void become(int me) const {
    dice.seed(mix(mix(seed) + mix(static_cast<uint64_t>(floats)) + static_cast<uint64_t>(me)));
    this_generation = generation;
    this_member = me;
    all_gathered = &times_left(members());
    early.begin = memory;
    early.bytes = bytes - 4096;
    const auto* const all = reinterpret_cast<const uint64_t*>(flags());
    constexpr size_t kOfMember = 2 * kMostPeerBlocks;
    flag_words = {all, kOfMember * ranges.size()};
    own_flag_words = flag_words.subspan(kOfMember * static_cast<size_t>(me), kOfMember);
    near_words = {reinterpret_cast<const uint64_t*>(near()), flag_words.size()};
    own_near_words = near_words.subspan(kOfMember * static_cast<size_t>(me), kOfMember);
  }
  PeerControl* control(int m) const { return &words().control(m); }
  float* area(int m) const {
    return reinterpret_cast<float*>(memory + PeerWords::bytes(members(), kIntegers) + near_bytes()) + m * area_floats;
  }
  // What a member's host gives, and what two shards of it left on the GPU: counts, and in some sums a NaN.
  struct Integers {
    Integers(int64_t sequence, int member) {
      const auto draw = [&](int i) {
        return static_cast<int64_t>(
            mix(mix(static_cast<uint64_t>(sequence)) + static_cast<uint64_t>(member * 977 + i)) >> 20);
      };
      for (int i = 0; i < kIntegers; ++i) host.push_back(i == kCounts + kFlag ? 0 : draw(i));
      for (int i = 0; i < 2 * kCounts; ++i) counted.push_back(draw(1000 + i));
      bad[1] = sequence % 3 == 1 && member == sequence % 2 ? 40 : -1;
    }
    std::vector<int64_t> all(int member) const {
      std::vector<int64_t> values = host;
      for (int i = 0; i < kCounts; ++i) values[i] += counted[i] + counted[kCounts + i];
      if (bad[1] >= 0) values[kCounts + kFlag] = nan_flag(2 * member + 1, 2);  // 40 lies in the third tensor
      return values;
    }
    std::vector<int64_t> host, counted;
    int64_t bad[2] = {-1, -1}, starts[4] = {0, 16, 32, 48};
  };
  std::vector<int64_t> expected_integers(int64_t sequence) const {
    std::vector<int64_t> total = Integers(sequence, 0).all(0);
    for (int m = 1; m < members(); ++m) {
      const std::vector<int64_t> more = Integers(sequence, m).all(m);
      for (int i = 0; i < kIntegers; ++i) total[i] = i < kCounts ? total[i] + more[i] : std::max(total[i], more[i]);
    }
    return total;
  }
  std::vector<float> shard_floats(int64_t sequence, int shard) const {
    std::vector<float> values(static_cast<size_t>(floats));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = awkward(mix(mix(static_cast<uint64_t>(sequence)) + static_cast<uint64_t>(shard) * 1000003 + i));
    return values;
  }
  std::vector<float> expected(int64_t sequence) const {
    const SumTree tree(shards);
    ExactSum<float> sum(tree, floats);
    sum.begin();
    for (int s = 0; s < shards; ++s) sum.add(s, shard_floats(sequence, s));
    const auto total = sum.total();
    return {total.begin(), total.end()};
  }
  // What member `me` asks of the kernel; its partial sums lie in `sum`.
  PeerSum arguments(int me, const Join<float>& join, const std::vector<ExactSum<float>::Partial>& mine,
                    float* total) const {
    PeerSum s;
    s.members = members();
    s.me = me;
    s.blocks = 3;
    s.partials = join.partials();
    s.first = join.first_partial(me);
    s.mine = join.partials(me);
    s.pending = kMostPeerPending;
    s.generation = generation;
    s.floats = floats;
    s.stride = stride;
    s.wait_ns = 2'000'000;
    for (int k = 0; k < s.partials; ++k) s.merges[k] = static_cast<uint8_t>(join.merges()[static_cast<size_t>(k)]);
    for (int m = 0; m < members(); ++m) {
      for (int k = 0; k < join.partials(m); ++k)
        s.partial[join.first_partial(m) + k] =
            m == me ? mine[static_cast<size_t>(k)].values.data() : area(m) + k * stride;
      s.slice[m] = area(m) + join.partials(m) * stride;
      if (reaches(me, m)) s.near[m] = near() + m * kMostPeerBlocks;
    }
    s.near_mine = near() + me * kMostPeerBlocks;
    s.shown[0] = area(me);
    s.slice_at = join.partials(me) * stride;
    s.total = total;
    s.counts = kCounts;
    s.maxima = kIntegers - kCounts;
    s.flag = kFlag;
    s.shown_integers = words().shown_integers();
    s.integer_stride = words().integer_stride;
    s.total_integers = words().total_integers(me);
    s.flags = flags();
    s.control = control(me);
    s.controls = reinterpret_cast<std::byte*>(control(0));
    return s;
  }
  // Whether a block left that member's sum number `ahead` of those that were queued together.
  bool left(int me, int ahead) const {
    return std::ranges::any_of(control(me)->unfinished[ahead], [](uint32_t& block) {
      return std::atomic_ref(block).load(std::memory_order_relaxed) != 0;
    });
  }
  // A member's life: sums of the sequence numbers [first, last); exit code 1: wrong bits, 2: unfinished for too long.
  void live(int me, int64_t first, int64_t last, void (*run)(const PeerSum&)) const {
    become(me);
    cuda_on_cpu::last_thread_first = me % 2 == 1;
    const SumTree tree(shards);
    Join<float> join(tree, ranges);
    ExactSum<float> sum(tree, floats, ranges[me].first, ranges[me].last);
    std::vector<float> total_memory(static_cast<size_t>(floats) + 16);
    void* aligned = total_memory.data();
    size_t room = total_memory.size() * sizeof(float);
    float* const total =
        static_cast<float*>(std::align(64, static_cast<size_t>(floats) * sizeof(float), aligned, room));
    std::vector<std::vector<float>> aligned_partials;
    for (int64_t sequence = first; sequence < last; ++sequence) {
      sum.begin();
      for (int s = ranges[me].first; s < ranges[me].last; ++s) sum.add(s, shard_floats(sequence, s));
      std::vector<ExactSum<float>::Partial> mine = sum.partials();
      aligned_partials.assign(mine.size(), std::vector<float>(static_cast<size_t>(floats) + 16));
      for (size_t k = 0; k < mine.size(); ++k) {
        void* at = aligned_partials[k].data();
        size_t space = aligned_partials[k].size() * sizeof(float);
        float* const to = static_cast<float*>(std::align(64, mine[k].values.size_bytes(), at, space));
        std::copy(mine[k].values.begin(), mine[k].values.end(), to);
        mine[k].values = {to, mine[k].values.size()};
      }
      std::fill_n(total, floats, -1.0f);
      PeerSum s = arguments(me, join, mine, total);
      const Integers integers(sequence, me);
      int64_t bad = -1;
      s.integers = integers.host.data();
      s.of_shards = {.shards = 2, .first = 2 * me, .tensors = 4, .counted = integers.counted.data()};
      s.of_shards.bad = integers.bad;
      s.of_shards.starts = integers.starts;
      s.bad = &bad;
      s.control->sequence = static_cast<uint64_t>(sequence);
      bool unfinished = true;
      for (int tries = 0; unfinished; ++tries) {
        if (tries > most_tries) _exit(2);
        std::memset(s.control->unfinished, 0, sizeof s.control->unfinished);
        bad = -1;
        run(s);
        unfinished = left(me, 0);
        times_left(me) += unfinished;
        const bool flagged = !unfinished && s.total_integers[kCounts + kFlag] != 0;
        if (bad != (unfinished || flagged ? 0 : -1)) _exit(4);  // what comes after it is held, or not
        if (unfinished && std::atomic_ref(s.control->abandon).load() != 0) _exit(3);
      }
      const std::vector<float> want = expected(sequence);
      if (std::memcmp(total, want.data(), want.size() * sizeof(float)) != 0) _exit(1);
      if (!std::ranges::equal(expected_integers(sequence), std::span(s.total_integers, kIntegers))) _exit(1);
      std::fill_n(s.total_integers, kIntegers, -1);
    }
  }
  // One that joins `rows` instead.
  PeerSum joining(int me, PeerSum s, const float* rows, float* joined) const {
    s.counts = s.maxima = 0;
    s.bits = true;
    s.blocks = 2;
    s.partials = members(), s.first = me, s.mine = 1;
    s.total = joined;
    for (int m = 0; m < members(); ++m) {
      s.merges[m] = m > 0;
      s.partial[m] = m == me ? rows : area(m);
    }
    return s;
  }
  // The same for steps of three sums that are queued together: integers, numbers that are joined, numbers that are
  // added.
  void live_in_steps(int me, int64_t steps, void (*run)(const PeerSum&)) const {
    become(me);
    const SumTree tree(shards);
    const Join<float> join(tree, ranges);
    const auto made = [&](int64_t step, int i) {
      return static_cast<uint32_t>(mix(mix(static_cast<uint64_t>(step)) + static_cast<uint64_t>(i)) >> 32);
    };
    const auto n = static_cast<size_t>(floats);
    struct alignas(64) Line {
      float x[16];
    };
    std::vector<Line> memory_of(8 * (n / 16 + 1));
    float* const all = memory_of[0].x;
    const auto vector = [&](size_t i) { return all + i * (n / 16 + 1) * 16; };
    float *const rows = vector(0), *const joined = vector(1), *const total = vector(2);
    for (int64_t step = 0; step < steps; ++step) {
      ExactSum<float> sum(tree, floats, ranges[me].first, ranges[me].last);
      sum.begin();
      for (int s = ranges[me].first; s < ranges[me].last; ++s) sum.add(s, shard_floats(step, s));
      std::vector<ExactSum<float>::Partial> mine = sum.partials();
      for (size_t k = 0; k < mine.size(); ++k) {
        std::copy(mine[k].values.begin(), mine[k].values.end(), vector(3 + k));
        mine[k].values = {vector(3 + k), n};
      }
      for (size_t i = 0; i < n; ++i)
        rows[i] = static_cast<int>(i) % members() == me ? float_of_bits(made(step, static_cast<int>(i))) : 0.0f;
      std::fill_n(joined, n, -1.0f);
      std::fill_n(total, n, -1.0f);
      const Integers integers(step, me);
      int64_t bad = -1;
      PeerSum sums[3] = {arguments(me, join, mine, total), arguments(me, join, mine, total),
                         arguments(me, join, mine, total)};
      std::vector<int64_t> counted(kCounts), all_counted(kCounts);
      for (int i = 0; i < kCounts; ++i) counted[i] = integers.counted[i];
      sums[0].floats = sums[0].maxima = 0;
      sums[0].blocks = 1;
      sums[0].of_shards = {.shards = 1, .counted = counted.data()};
      sums[0].total_integers = all_counted.data();
      sums[1] = joining(me, sums[1], rows, joined);
      sums[2].counts = sums[2].maxima = 0;
      for (int i = 0; i < 3; ++i) sums[i].ahead = i, sums[i].flag = -1, sums[i].bad = &bad;
      control(me)->sequence = static_cast<uint64_t>(3 * step);
      for (int first = 0, tries = 0; first < 3; ++tries) {
        if (tries > most_tries) _exit(2);
        std::memset(control(me)->unfinished, 0, sizeof control(me)->unfinished);
        bad = -1;
        for (int i = first; i < 3; ++i) {
          if (step == die_at_step && i == die_in_sum) die_at_block = 0;
          run(sums[i]);
        }
        while (first < 3 && !left(me, first)) ++first;
        if (first < 3) ++times_left(me);
        if (bad != (first < 3 ? 0 : -1)) _exit(4);
        if (first < 3 && std::atomic_ref(control(me)->abandon).load() != 0) _exit(3);
      }
      for (size_t i = 0; i < n; ++i)
        if (bits_of_float(joined[i]) != made(step, static_cast<int>(i))) _exit(1);
      if (std::memcmp(total, expected(step).data(), n * sizeof(float)) != 0) _exit(1);
      for (int i = 0; i < kCounts; ++i) {
        int64_t want = 0;
        for (int m = 0; m < members(); ++m) want += Integers(step, m).counted[i];
        if (all_counted[i] != want) _exit(1);
      }
    }
  }
  std::vector<int> lives(int64_t first, int64_t last, void (*run)(const PeerSum&)) const {
    std::vector<pid_t> pids;
    for (int m = 0; m < members(); ++m)
      pids.push_back(start([this, m, first, last, run] { live(m, first, last, run); }));
    std::vector<int> ends;
    for (const pid_t pid : pids) ends.push_back(end_of(pid));
    return ends;
  }

  std::atomic<int>& times_left(int m) const {  // that it had left the kernel, and came again
    return reinterpret_cast<std::atomic<int>*>(memory + bytes - 4096)[m];
  }
  static constexpr int kCounts = 5, kIntegers = 75, kFlag = 3;  // more than a block has threads
  int shards;
  std::vector<ShardRange> ranges;
  int64_t floats, stride = 0, area_floats = 0;
  int most_tries = 5000;
  uint64_t generation, bytes = 0, seed = 0;  // seed: of the dice
  std::byte* memory = nullptr;
};

}  // namespace tandem::peer_rig
