// The kernel of the sum over peers: one sum at a time (reduce/peer_rig.h).
#include <gtest/gtest.h>

#include <random>

#include "reduce/peer_rig.h"

namespace tandem {
namespace {

using namespace peer_rig;

TEST(PeerSum, AnyMembersAndRangesGiveTheBitsOfOneProcessOnWeakMemory) {
  std::mt19937_64 random(11);
  const int64_t lengths[] = {0, 3, 15, 16, 17, 190, 1000, 2049};
  for (int round = 0; round < 12; ++round) {
    const int members = 2 + round % 4, shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 9);
    const Rig rig(shards, random_ranges(shards, members, random()), lengths[round % 8]);
    EXPECT_EQ(rig.lives(0, 6, run_emulated<PeerFault::kNone>), std::vector<int>(static_cast<size_t>(members), 0))
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
template <PeerFault kFault>
bool is_seen() {
  constexpr bool kHeld = kFault == PeerFault::kNoSecondWait;                       // one sum in one order of events
  constexpr uint64_t kRounds = kFault == PeerFault::kNone ? 20 : kHeld ? 1 : 400;  // others end once they see it
  for (uint64_t round = 0; round < kRounds; ++round) {
    Rig rig(6, {{0, 2}, {2, 3}, {3, 6}}, 700);
    rig.seed = round;
    if (!kHeld) rig.most_tries = 20;
    // What an older generation left: the same sequence numbers under another tag, and the numbers that went with them.
    for (int m = 0; m < rig.members(); ++m)
      for (PeerFlag* const flags : {rig.flags(), rig.near()})
        for (int block = 0; block < kMostPeerBlocks; ++block)
          flags[m * kMostPeerBlocks + block] = {peer_tag(rig.generation - 1, 0, 3), peer_tag(rig.generation - 1, 0, 3)};
    const std::vector<int> ends = rig.lives(0, kHeld ? 1 : 4, run_emulated<kFault>);
    if (std::ranges::any_of(ends, [](int code) { return code == 1; })) return true;
  }
  return false;
}
TEST(PeerSum, ABrokenProtocolIsSeen) {
  EXPECT_FALSE(is_seen<PeerFault::kNone>());
  EXPECT_TRUE(is_seen<PeerFault::kFlagBeforeData>());
  EXPECT_TRUE(is_seen<PeerFault::kNoFence>());
  EXPECT_TRUE(is_seen<PeerFault::kNoAcquire>());
  EXPECT_TRUE(is_seen<PeerFault::kAnyGeneration>());
  EXPECT_TRUE(is_seen<PeerFault::kNoSecondWait>());
}

// The launcher looks for a dead member's part in host memory alone, so a sum ends by the flags there. Those on a GPU
// save the trip to them, and one that never comes costs time alone.
TEST(PeerSum, AFlagOnAGpuAloneEndsNoSum) {
  const Rig rig(4, {{0, 2}, {2, 4}}, 100);
  ASSERT_TRUE(Rig::reaches(0, 1));
  const SumTree tree(4);
  const Join<float> join(tree, rig.ranges);
  struct alignas(64) Line {
    float x[16];
  };
  std::vector<Line> mine(7), total(7);
  std::vector<ExactSum<float>::Partial> partials;
  for (int k = 0; k < join.partials(0); ++k) partials.push_back({0, {mine[0].x, 100}});
  PeerSum s = rig.arguments(0, join, partials, total[0].x);
  s.counts = s.maxima = 0;
  s.flag = -1;
  s.wait_ns = 1;
  const auto set = [&](PeerFlag* flags, uint64_t tag) {
    std::fill_n(flags + kMostPeerBlocks, s.blocks, PeerFlag{tag, tag});
  };
  const auto ends = [&] {
    std::memset(rig.control(0)->unfinished, 0, sizeof rig.control(0)->unfinished);
    run_emulated<PeerFault::kNone>(s);
    return !rig.left(0, 0);
  };
  const uint64_t tag = peer_tag(rig.generation, 0, s.blocks);
  set(rig.near(), tag);
  EXPECT_FALSE(ends());
  set(rig.flags(), tag);
  EXPECT_TRUE(ends());
  set(rig.near(), 0);
  EXPECT_TRUE(ends());
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
          if (m == 1) rig.live(m, 0, 1, run_emulated<PeerFault::kNone>);
          if (m == 1) die_at_block = block, die_at = point;
          rig.live(m, m == 1 ? 1 : 0, 3, run_emulated<PeerFault::kNone>);
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
    const pid_t dead = start([&] { rig.live(1, 0, 1, run_emulated<PeerFault::kNone>); });
    until([&] { return flag(1, &PeerFlag::published) != 0; });
    EXPECT_EQ(rig.words().close(1, rig.generation), std::nullopt);
    const pid_t other = start([&] { rig.live(0, 0, 1, run_emulated<PeerFault::kNone>); });
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
  const pid_t first = start([&] { rig.live(0, 0, 5, run_emulated<PeerFault::kNone>); });
  while (!rig.left(0, 0)) sched_yield();
  const pid_t second = start([&] { rig.live(1, 0, 5, run_emulated<PeerFault::kNone>); });
  EXPECT_EQ(end_of(first), 0);
  EXPECT_EQ(end_of(second), 0);
}

}  // namespace
}  // namespace tandem
