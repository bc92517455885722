// Sums over peers that are queued together, as those of a step are (reduce/peer_rig.h).
#include <gtest/gtest.h>

#include "reduce/peer_rig.h"

namespace tandem {
namespace {

using namespace peer_rig;

TEST(PeerSum, SumsThatAreQueuedTogetherGiveTheBitsOfOneProcessOnWeakMemory) {
  for (int round = 0; round < 6; ++round) {
    const int members = 2 + round % 3;
    const Rig rig(6, random_ranges(6, members, static_cast<uint64_t>(round)), round % 2 == 0 ? 700 : 33);
    std::vector<pid_t> pids;
    for (int m = 0; m < members; ++m) {
      pids.push_back(start([&, m] { rig.live_in_steps(m, 6, run_emulated<PeerFault::kNone>); }));
      while (m == 0 && !rig.left(0, 0)) sched_yield();  // it has left all three and comes again
    }
    for (const pid_t pid : pids) EXPECT_EQ(end_of(pid), 0) << "round " << round;
    EXPECT_GT(rig.times_left(0), 0);
  }
}

TEST(PeerSum, ADeathAmongSumsThatAreQueuedTogetherLeavesNoWrongTotal) {
  for (const PeerPoint point : {PeerPoint::kBegun, PeerPoint::kPublished, PeerPoint::kReduced})
    for (const int sum : {0, 1, 2}) {
      const Rig rig(6, {{0, 2}, {2, 3}, {3, 6}}, 700);
      std::vector<pid_t> pids;
      for (int m = 0; m < 3; ++m)
        pids.push_back(start([&, m] {
          if (m == 1) die_at_step = 1, die_in_sum = sum, die_at = point;
          rig.live_in_steps(m, 3, run_emulated<PeerFault::kNone>);
        }));
      EXPECT_EQ(end_of(pids[1]), 128 + SIGKILL);
      for (const int m : {0, 2}) std::atomic_ref(rig.control(m)->abandon).store(1);
      for (const int m : {0, 2}) EXPECT_EQ(end_of(pids[m]), 3) << "sum " << sum;
    }
}

// A member that is late gathers the first sum when another has shown what it has for the second.
TEST(PeerSum, TheNextSumsPartialsLeaveASliceAloneThatSomebodyStillGathers) {
  const Rig rig(4, {{0, 1}, {1, 4}}, 700);
  const SumTree tree(4);
  const Join<float> join(tree, rig.ranges);
  ASSERT_EQ(join.partials(1), 2);
  const auto n = static_cast<size_t>(rig.floats);
  struct Member {
    std::vector<float> rows, joined, total;
    std::vector<std::vector<float>> vectors;
    std::vector<ExactSum<float>::Partial> mine;
    int64_t bad = -1;
  } of[2];
  const auto sum_of = [&](int me, bool first) {
    Member& m = of[me];
    PeerSum s = rig.arguments(me, join, m.mine, m.total.data());
    if (first) s = rig.joining(me, s, m.rows.data(), m.joined.data());
    s.counts = s.maxima = 0;
    s.flag = -1;
    s.ahead = first ? 0 : 1;
    s.bad = &m.bad;
    s.wait_ns = 1;
    return s;
  };
  for (int me = 0; me < 2; ++me) {
    of[me].rows.assign(n, me == 1 ? 2.5f : 0.0f);
    of[me].joined.assign(n, -1);
    of[me].total.assign(n, -1);
    for (int k = 0; k < join.partials(me); ++k) of[me].vectors.emplace_back(n, 7.0f);
    for (const std::vector<float>& vector : of[me].vectors) of[me].mine.push_back({0, vector});
  }
  const auto run = [&](int me, bool first) {
    of[me].bad = -1;
    std::memset(rig.control(me)->unfinished, 0, sizeof rig.control(me)->unfinished);
    run_emulated<PeerFault::kNone>(sum_of(me, first));
    return !rig.left(me, first ? 0 : 1);
  };
  EXPECT_FALSE(run(1, true)) << "nobody else is there";
  EXPECT_FALSE(run(0, true)) << "it has added up, and waits";
  EXPECT_TRUE(run(1, true));
  EXPECT_FALSE(run(1, false)) << "its partials are shown, and nobody else is there";
  EXPECT_TRUE(run(0, true));
  EXPECT_EQ(of[0].joined, std::vector<float>(n, 2.5f));
}

TEST(PeerSum, ASumBehindOneThatWasLeftUnfinishedDoesNothing) {
  const Rig rig(4, {{0, 2}, {2, 4}}, 100);
  const SumTree tree(4);
  const Join<float> join(tree, rig.ranges);
  ExactSum<float> sum(tree, rig.floats, 0, 2);
  sum.begin();
  for (int s = 0; s < 2; ++s) sum.add(s, rig.shard_floats(0, s));
  PeerSum behind = rig.arguments(0, join, sum.partials(), nullptr);
  int64_t bad = 0;
  behind.bad = &bad;
  behind.ahead = 1;
  run_emulated<PeerFault::kNone>(behind);
  EXPECT_TRUE(rig.left(0, 1));
  EXPECT_FALSE(rig.left(0, 0));
  for (int block = 0; block < behind.blocks; ++block) EXPECT_EQ(rig.flags()[block].published, 0u);
  EXPECT_EQ(bad, 0);
}

}  // namespace
}  // namespace tandem
