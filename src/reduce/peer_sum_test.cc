// The kernel of the sum over peers in the emulator, between real processes, on memory that is weaker than a GPU's: what
// a thread stores for others reaches them late and in any order, except before a flag that is published.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "kernels/gpu/intrinsics.h"
#include "kernels/gpu/peer_sum_block.h"
#include "kernels/tree_kernels.h"
#include "reduce/combine_trial.h"
#include "reduce/exact_sum.h"
#include "reduce/join.h"
#include "reduce/peer_words.h"

namespace tandem {
namespace {

using namespace trial;

enum class Fault { kNone, kFlagBeforeData, kNoFence, kAnyGeneration, kNoSecondWait };

struct EmulatedThreads {
  static constexpr int kCount = 64;
  static int index() { return static_cast<int>(threadIdx.x); }
  static int count() { return kCount; }
  static void sync() { __syncthreads(); }
  static bool& shared_flag() {
    static bool flag;
    return flag;
  }
};

// Stores that nobody else sees yet.
struct Late {
  void* to;
  uint64_t value;
  int bytes;
};
std::vector<Late> late;
std::mt19937 dice;
uint64_t this_generation = 0;
int die_at_block = -1;
PeerPoint die_at = PeerPoint::kBegun;

void arrive(const Late& store) {
  if (store.bytes == 4)
    std::memcpy(store.to, &store.value, 4);
  else
    std::atomic_ref(*static_cast<uint64_t*>(store.to)).store(store.value, std::memory_order_release);
}
void some_arrive(size_t rest) {
  while (late.size() > rest) {
    const size_t i = dice() % late.size();
    arrive(late[i]);
    late[i] = late.back();
    late.pop_back();
  }
}

template <Fault kFault>
struct WeakWords {
  static void store(peer::Four* to, const peer::Four& four) {
    for (int i = 0; i < peer::kWidth; ++i) store(&to->x[i], four.x[i]);
  }
  static void store(float* to, float x) { late.push_back({to, std::bit_cast<uint32_t>(x), 4}); }
  static void store(int64_t* to, int64_t x) { late.push_back({to, static_cast<uint64_t>(x), 8}); }
  static void publish(uint64_t* word, uint64_t tag) {
    if (kFault == Fault::kFlagBeforeData) {
      arrive({word, tag, 8});
      sched_yield();
      some_arrive(0);
    } else if (kFault == Fault::kNoFence) {
      late.push_back({word, tag, 8});
    } else {
      some_arrive(0);
      arrive({word, tag, 8});
    }
  }
  static uint64_t read(const uint64_t* word) {
    if (!late.empty() && dice() % 4 == 0) some_arrive(late.size() - 1 - dice() % late.size());
    const uint64_t value = std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
    if (kFault != Fault::kAnyGeneration || value >> 40 == 0) return value;
    return this_generation << 40 | (value & ((uint64_t{1} << 40) - 1));
  }
  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static uint64_t now_ns() {
    sched_yield();
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  static void reach(PeerPoint point, int block) {
    if (block == die_at_block && point == die_at && threadIdx.x == 0) {
      some_arrive(late.size() / 2);
      raise(SIGKILL);
    }
  }
};

template <Fault kFault>
void run_emulated(const PeerSum& sum) {
  cuda_on_cpu::launch(dim3(static_cast<unsigned>(sum.blocks)), dim3(EmulatedThreads::kCount), [&sum] {
    const int block = static_cast<int>(blockIdx.x);
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
    bytes =
        PeerWords::bytes(members(), kIntegers) + static_cast<uint64_t>(members()) * area_floats * sizeof(float) + 4096;
    memory = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Rig() { munmap(memory, bytes); }
  int members() const { return static_cast<int>(ranges.size()); }
  PeerWords words() const { return {{memory, PeerWords::bytes(members(), kIntegers)}, members(), kIntegers}; }
  PeerFlag* flags() const { return words().flags(); }
  PeerControl* control(int m) const { return &words().control(m); }
  float* area(int m) const {
    return reinterpret_cast<float*>(memory + PeerWords::bytes(members(), kIntegers)) + m * area_floats;
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
    }
    s.shown[0] = area(me);
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
  // A member's life: sums of the sequence numbers [first, last); exit code 1: wrong bits, 2: unfinished for too long.
  void live(int me, int64_t first, int64_t last, void (*run)(const PeerSum&)) const {
    dice.seed(static_cast<unsigned>(getpid()));
    this_generation = generation;
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
        unfinished = std::ranges::any_of(s.control->unfinished, [](uint32_t left) { return left != 0; });
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
  uint64_t generation, bytes = 0;
  std::byte* memory = nullptr;
};

TEST(PeerSum, AnyMembersAndRangesGiveTheBitsOfOneProcessOnWeakMemory) {
  std::mt19937_64 random(11);
  const int64_t lengths[] = {0, 3, 15, 16, 17, 190, 1000, 2049};
  for (int round = 0; round < 12; ++round) {
    const int members = 2 + round % 4, shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 9);
    const Rig rig(shards, random_ranges(shards, members, random()), lengths[round % 8]);
    EXPECT_EQ(rig.lives(0, 6, run_emulated<Fault::kNone>), std::vector<int>(static_cast<size_t>(members), 0))
        << "round " << round << ", " << shards << " shards, " << rig.floats << " floats";
  }
}

TEST(PeerSum, TheMarkIsTheNewestSumOfWhichAllBlocksAreDone) {
  const Rig rig(4, {{0, 2}, {2, 4}}, 100);
  const PeerWords words = rig.words();
  const auto mark = [&](std::vector<uint64_t> reduced) {
    for (size_t block = 0; block < kMostPeerBlocks; ++block)
      words.flags()[kMostPeerBlocks + block].reduced = block < reduced.size() ? reduced[block] : 0;
    return words.mark(1, rig.generation);
  };
  const auto tag = [&](uint64_t sequence, int blocks) { return peer_tag(rig.generation, sequence, blocks); };
  EXPECT_EQ(mark({}), std::nullopt);
  EXPECT_EQ(mark({peer_tag(rig.generation - 1, 9, 1)}), std::nullopt) << "of an older generation";
  EXPECT_EQ(mark({tag(7, 3), tag(7, 3), tag(7, 3)}), 7);
  EXPECT_EQ(mark({tag(7, 3), tag(6, 3), tag(6, 3)}), 6) << "block 0 goes first";
  EXPECT_EQ(mark({tag(6, 3), tag(7, 3), tag(6, 3)}), 6) << "another block goes first";
  EXPECT_EQ(mark({tag(7, 3), tag(7, 3), tag(3, 1)}), 6);
  EXPECT_EQ(mark({tag(8, 1), tag(7, 3), tag(7, 3)}), 8) << "the newest sum has one block";
  EXPECT_EQ(mark({tag(0, 2)}), std::nullopt) << "nothing was done before the first";
}

// Each broken protocol is seen: wrong bits, or nobody gets to an end.
template <Fault kFault>
bool is_seen() {
  for (int round = 0; round < 20; ++round) {
    Rig rig(6, {{0, 2}, {2, 3}, {3, 6}}, 700);
    rig.most_tries = 20;
    // What an older generation left: the same sequence numbers under another tag, and the numbers that went with them.
    for (int m = 0; m < rig.members(); ++m)
      for (int block = 0; block < kMostPeerBlocks; ++block)
        rig.flags()[m * kMostPeerBlocks + block] = {peer_tag(rig.generation - 1, 0, 3),
                                                    peer_tag(rig.generation - 1, 0, 3)};
    const std::vector<int> ends = rig.lives(0, 4, run_emulated<kFault>);
    if (std::ranges::any_of(ends, [](int code) { return code == 1; })) return true;
  }
  return false;
}
TEST(PeerSum, ABrokenProtocolIsSeen) {
  EXPECT_FALSE(is_seen<Fault::kNone>());
  EXPECT_TRUE(is_seen<Fault::kFlagBeforeData>());
  EXPECT_TRUE(is_seen<Fault::kNoFence>());
  EXPECT_TRUE(is_seen<Fault::kAnyGeneration>());
}

// Wherever a member dies, the others leave when they are told, and whoever has a total has the right one.
TEST(PeerSum, ADeathInsideTheKernelLeavesNoWrongTotal) {
  for (const PeerPoint point : {PeerPoint::kBegun, PeerPoint::kShown, PeerPoint::kPublished, PeerPoint::kAdded,
                                PeerPoint::kReduced, PeerPoint::kGathered})
    for (const int block : {0, 2}) {
      const Rig rig(6, {{0, 2}, {2, 3}, {3, 6}}, 700);
      std::vector<pid_t> pids;
      for (int m = 0; m < 3; ++m)
        pids.push_back(start([&, m] {
          if (m == 1) rig.live(m, 0, 1, run_emulated<Fault::kNone>);
          if (m == 1) die_at_block = block, die_at = point;
          rig.live(m, m == 1 ? 1 : 0, 3, run_emulated<Fault::kNone>);
        }));
      EXPECT_EQ(end_of(pids[1]), 128 + SIGKILL);
      for (const int m : {0, 2}) std::atomic_ref(rig.control(m)->abandon).store(1);
      for (const int m : {0, 2}) EXPECT_EQ(end_of(pids[m]), 3) << "block " << block;
    }
}

// Its process is dead and was closed, its GPU goes on and does its part: nobody ends that sum with it before the
// launcher has told how far all go, nor after that if they do not go so far.
TEST(PeerSum, ADeadMembersGpuThatGoesOnEndsNoSum) {
  for (const int64_t cut : {-1, 0}) {
    Rig rig(4, {{0, 2}, {2, 4}}, 900);
    rig.most_tries = 1 << 30;
    const auto until = [](const auto& ready) {
      while (!ready()) sched_yield();
    };
    const auto flag = [&](int member, uint64_t PeerFlag::*word) {
      return std::atomic_ref(rig.flags()[member * kMostPeerBlocks + 2].*word).load();
    };
    const pid_t dead = start([&] { rig.live(1, 0, 1, run_emulated<Fault::kNone>); });
    until([&] { return flag(1, &PeerFlag::published) != 0; });
    EXPECT_EQ(rig.words().close(1, rig.generation), std::nullopt);
    const pid_t other = start([&] { rig.live(0, 0, 1, run_emulated<Fault::kNone>); });
    until([&] { return flag(0, &PeerFlag::reduced) != 0 && flag(1, &PeerFlag::reduced) != 0; });
    const auto until_it_left_or_ended = [&] {
      const int before = rig.times_left(0);
      until([&] {
        siginfo_t ended{};
        waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT | WNOHANG);
        return rig.times_left(0) > before + 1 || ended.si_pid == other;
      });
    };
    until_it_left_or_ended();
    EXPECT_TRUE(rig.words().undecided());
    rig.words().decide(cut);
    EXPECT_FALSE(rig.words().undecided());
    if (cut == 0) {
      EXPECT_EQ(end_of(other), 0);
    } else {
      until_it_left_or_ended();
      std::atomic_ref(rig.control(0)->abandon).store(1);
      EXPECT_EQ(end_of(other), 3);
    }
    std::atomic_ref(rig.control(1)->abandon).store(1);
    const int end = end_of(dead);
    EXPECT_TRUE(end == 0 || end == 3) << end;
  }
}

// A member that was stopped while others waited: they leave the kernel, come again, and go on where they stood.
TEST(PeerSum, WhoComesLateFindsOthersThatLeftAndCameAgain) {
  const Rig rig(4, {{0, 2}, {2, 4}}, 900);
  const pid_t first = start([&] { rig.live(0, 0, 5, run_emulated<Fault::kNone>); });
  while (std::ranges::none_of(rig.control(0)->unfinished, [](uint32_t& left) {
    return std::atomic_ref(left).load(std::memory_order_relaxed) != 0;
  }))
    sched_yield();
  const pid_t second = start([&] { rig.live(1, 0, 5, run_emulated<Fault::kNone>); });
  EXPECT_EQ(end_of(first), 0);
  EXPECT_EQ(end_of(second), 0);
}

}  // namespace
}  // namespace tandem
