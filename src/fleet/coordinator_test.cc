#include "fleet/coordinator.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Actions = std::vector<Action>;
using From = GenerationStart::From;

template <class T>
std::vector<T> all(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions)
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}
template <class T>
bool has(const Actions& actions) {
  return !all<T>(actions).empty();
}
GenerationStart start_in(const Actions& actions) {
  const auto generations = all<StartGeneration>(actions);
  return generations.size() == 1 ? generations[0].start : GenerationStart{};
}

// A coordinator with ranks 0 .. count-1 at work in its first generation.
struct Job {
  explicit Job(int count, CoordinatorOptions options = {.shards = 24}) : c(options) {
    for (int rank = 0; rank < count; ++rank) c.expect(rank, 1);
    for (int rank = 0; rank < count; ++rank) c.arrived(rank);
    adopt();
  }
  void adopt() {
    for (int rank : c.members()) c.adopted(rank, c.current().generation);
  }
  // All members write a part; what the last one's report led to.
  Actions snapshot(int64_t step, bool held = false, bool final = false) {
    Actions last;
    for (int rank : c.members()) last = c.snapshot_part(rank, c.current().generation, step, 77, held, final);
    return last;
  }
  Coordinator c;
};

TEST(Coordinator, TheFirstOrderWaitsForEverybodyExpected) {
  Coordinator c({.shards = 24});
  EXPECT_TRUE(c.expect(0, 1).empty());
  c.expect(1, 1);
  c.expect(2, 1);
  EXPECT_TRUE(c.arrived(0).empty());
  EXPECT_TRUE(c.arrived(1).empty());
  EXPECT_FALSE(c.started());
  const GenerationStart start = start_in(c.lost(2, std::nullopt));
  EXPECT_EQ(start.generation, 1u);
  EXPECT_EQ(start.from, From::kStart);
  EXPECT_EQ(start.members, (std::vector<ShardAssignment>{{0, {0, 12}}, {1, {12, 24}}}));
  EXPECT_TRUE(c.started());
}

TEST(Coordinator, AResumedRunBeginsAtItsCheckpoint) {
  Job job(2, {.shards = 24, .resume_step = 30});
  EXPECT_EQ(job.c.current().from, From::kSnapshot);
  EXPECT_EQ(job.c.current().snapshot_step, 30);
  EXPECT_EQ(job.c.snapshot_step(), 30);
}

TEST(Coordinator, MoreWorkersThanShardsWaitAsSpares) {
  Job job(3, {.shards = 2});
  EXPECT_EQ(job.c.members(), (std::set<int>{0, 1}));
  job.snapshot(5);
  job.c.lost(1, Mark{1, 9});
  // The survivor goes on alone; the spare comes in at the held snapshot that was asked for.
  EXPECT_EQ(job.c.members(), (std::set<int>{0}));
  job.adopt();
  EXPECT_EQ(start_in(job.snapshot(6, true)).members.size(), 2u);
  EXPECT_TRUE(job.c.is_member(2));
}

TEST(Coordinator, ADeathOfAStatelessWorkerRunsThePhaseAgain) {
  Job job(3);
  const GenerationStart start = start_in(job.c.lost(1, Mark{1, 5}));
  EXPECT_EQ(start.generation, 2u);
  EXPECT_EQ(start.from, From::kSamePhase);
  EXPECT_EQ(start.cut, 5);
  EXPECT_EQ(start.members, (std::vector<ShardAssignment>{{0, {0, 12}}, {2, {12, 24}}}));
}

TEST(Coordinator, ASecondMarkIsClippedByTheFirstCut) {
  Job job(4);
  EXPECT_EQ(start_in(job.c.lost(1, Mark{1, 5})).cut, 5);
  EXPECT_EQ(start_in(job.c.lost(2, Mark{1, 6})).cut, 5);
}

TEST(Coordinator, ASecondMarkBeforeTheFirstCutLowersIt) {
  Job job(4);
  job.c.lost(1, Mark{1, 5});
  EXPECT_EQ(start_in(job.c.lost(2, Mark{1, 4})).cut, 4);
}

TEST(Coordinator, AMarkOfTheNewGenerationCountsInFull) {
  Job job(4);
  job.c.lost(1, Mark{1, 5});
  job.adopt();
  EXPECT_EQ(start_in(job.c.lost(2, Mark{2, 9})).cut, 9);
}

TEST(Coordinator, AMarkFromBeforeARestoreCountsAsNothingDone) {
  Job job(4);
  job.snapshot(3);
  job.c.lost(1, std::nullopt);
  job.adopt();
  const GenerationStart start = start_in(job.c.lost(2, Mark{1, 20}));
  EXPECT_EQ(start.from, From::kSamePhase);
  EXPECT_EQ(start.cut, -1);
}

TEST(Coordinator, AnUnknownMarkSendsEverybodyToTheSnapshot) {
  Job job(3);
  job.snapshot(8);
  const GenerationStart start = start_in(job.c.lost(1, std::nullopt));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.snapshot_step, 8);
  EXPECT_EQ(start.cut, -1);
}

TEST(Coordinator, StatefulShardsGoBackToTheSnapshotOrTheStart) {
  Job job(3, {.shards = 24, .stateful = true});
  EXPECT_EQ(start_in(job.c.lost(1, Mark{1, 5})).from, From::kStart);
  job.adopt();
  job.snapshot(8);
  EXPECT_EQ(start_in(job.c.lost(2, Mark{2, 50})).snapshot_step, 8);
}

TEST(Coordinator, ARestoreThatIsNotAdoptedByAllIsRepeated) {
  Job job(4);
  job.snapshot(8);
  job.c.lost(0, std::nullopt);
  job.c.adopted(1, 2);
  const GenerationStart start = start_in(job.c.lost(2, Mark{1, 40}));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.generation, 3u);
  job.adopt();
  EXPECT_EQ(start_in(job.c.lost(1, Mark{3, 41})).from, From::kSamePhase);
}

TEST(Coordinator, ASnapshotIsWholeWhenEveryMemberWroteItsPart) {
  Job job(3);
  EXPECT_TRUE(job.c.snapshot_part(0, 1, 10, 77, false, false).empty());
  EXPECT_TRUE(job.c.snapshot_part(2, 1, 10, 77, false, false).empty());
  EXPECT_EQ(job.c.snapshot_step(), -1);
  const Actions actions = job.c.snapshot_part(1, 1, 10, 77, false, false);
  EXPECT_EQ(actions.size(), 1u);
  EXPECT_EQ(all<SnapshotWhole>(actions).at(0).step, 10);
  EXPECT_EQ(all<SnapshotWhole>(actions).at(0).generation, 1u);
  EXPECT_EQ(job.c.snapshot_step(), 10);
}

TEST(Coordinator, PartsOfAnOlderGenerationDoNotCount) {
  Job job(3);
  job.c.snapshot_part(0, 1, 10, 77, false, false);
  job.c.snapshot_part(1, 1, 10, 77, false, false);
  job.c.lost(1, Mark{1, 9});
  EXPECT_TRUE(job.c.snapshot_part(2, 1, 10, 77, false, false).empty());
  EXPECT_EQ(job.c.snapshot_step(), -1);
}

TEST(Coordinator, WhatALostRankSaysIsIgnored) {
  Job job(2);
  job.c.lost(1, Mark{1, 3});
  EXPECT_TRUE(job.c.snapshot_part(1, 2, 10, 78, true, true).empty());
  EXPECT_TRUE(job.c.state_hash(1, 2, 10, 78).empty());
  EXPECT_TRUE(job.c.lost(1, Mark{1, 3}).empty());
  EXPECT_TRUE(job.c.arrived(1).empty());
  EXPECT_TRUE(job.c.adopted(1, 2).empty());
}

TEST(Coordinator, WhoArrivesLaterJoinsAtAHeldSnapshot) {
  Job job(2);
  job.c.expect(5, 1);
  const auto asks = all<AskSnapshot>(job.c.arrived(5));
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_TRUE(asks[0].hold);
  EXPECT_FALSE(has<StartGeneration>(job.snapshot(10)));  // one of their own, not held
  const GenerationStart start = start_in(job.snapshot(11, true));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.snapshot_step, 11);
  EXPECT_EQ(start.members, (std::vector<ShardAssignment>{{0, {0, 8}}, {1, {8, 16}}, {5, {16, 24}}}));
}

TEST(Coordinator, ARestoreTakesInWhoWaits) {
  Job job(2);
  job.c.expect(5, 1);
  job.c.arrived(5);
  EXPECT_EQ(start_in(job.c.lost(0, std::nullopt)).members, (std::vector<ShardAssignment>{{1, {0, 12}}, {5, {12, 24}}}));
}

TEST(Coordinator, GoingOnTakesInNobodyAndAsksAgain) {
  Job job(3);
  job.c.expect(5, 1);
  const uint64_t asked = all<AskSnapshot>(job.c.arrived(5)).at(0).serial;
  job.c.snapshot_part(0, 1, 10, 77, true, false);
  const Actions actions = job.c.lost(1, Mark{1, 9});
  EXPECT_EQ(start_in(actions).from, From::kSamePhase);
  EXPECT_FALSE(job.c.is_member(5));
  ASSERT_TRUE(has<AskSnapshot>(actions));
  EXPECT_GT(all<AskSnapshot>(actions)[0].serial, asked);
}

TEST(Coordinator, LeavingHappensAtAHeldSnapshot) {
  Job job(3);
  EXPECT_TRUE(all<AskSnapshot>(job.c.want_leave(1)).at(0).hold);
  EXPECT_TRUE(job.c.is_member(1));
  const Actions actions = job.snapshot(4, true);
  EXPECT_EQ(all<Dismiss>(actions).at(0).rank, 1);
  EXPECT_EQ(start_in(actions).members, (std::vector<ShardAssignment>{{0, {0, 12}}, {2, {12, 24}}}));
  EXPECT_FALSE(job.c.is_member(1));
}

TEST(Coordinator, TheLastOneCannotLeave) {
  Job job(2);
  job.c.want_leave(0);
  EXPECT_TRUE(job.c.want_leave(1).empty());
  job.c.lost(1, Mark{1, 3});
  job.adopt();
  const Actions actions = job.snapshot(4, true);  // it was asked before the other one died
  EXPECT_FALSE(has<Dismiss>(actions));
  EXPECT_EQ(start_in(actions).members, (std::vector<ShardAssignment>{{0, {0, 24}}}));
}

TEST(Coordinator, LeaversWhoAreNoMembersGoAtOnceAndStrangersAreIgnored) {
  Job job(2, {.shards = 1});
  EXPECT_EQ(all<Dismiss>(job.c.want_leave(1)).at(0).rank, 1);
  EXPECT_TRUE(job.c.want_leave(9).empty());
}

TEST(Coordinator, AHeldSnapshotIsAlwaysAnswered) {
  Job job(2);
  const GenerationStart start = start_in(job.snapshot(4, true));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.snapshot_step, 4);
}

TEST(Coordinator, StopTakesASnapshotThenFinishesAndDismissesAll) {
  Job job(2);
  EXPECT_TRUE(all<AskSnapshot>(job.c.want_stop()).at(0).hold);
  EXPECT_TRUE(job.c.want_stop().empty());
  const Actions actions = job.snapshot(7, true);
  EXPECT_EQ(all<Finished>(actions).at(0).step, 7);
  EXPECT_EQ(all<Dismiss>(actions).size(), 2u);
  EXPECT_FALSE(has<StartGeneration>(actions));
  EXPECT_TRUE(job.c.lost(0, Mark{1, 3}).empty());
}

TEST(Coordinator, StopWithNobodyAtWorkFinishesAtTheLastSnapshot) {
  Job job(1);
  job.snapshot(7);
  job.c.want_stop();
  EXPECT_EQ(all<Finished>(job.c.lost(0, Mark{1, 30})).at(0).step, 7);
  Coordinator resumed({.shards = 4, .resume_step = 30});
  resumed.expect(0, 1);
  EXPECT_EQ(all<Finished>(resumed.want_stop()).at(0).step, 30);
}

TEST(Coordinator, StopBeforeThereIsAnythingToStopAtMakesASnapshotFirst) {
  Coordinator c({.shards = 4});
  c.expect(0, 1);
  EXPECT_TRUE(c.want_stop().empty());
  EXPECT_TRUE(all<AskSnapshot>(c.arrived(0)).at(0).hold);
  EXPECT_EQ(all<Finished>(c.snapshot_part(0, 1, 1, 77, true, false)).at(0).step, 1);
}

TEST(Coordinator, TheFinalSnapshotEndsTheRun) {
  Job job(2);
  const Actions actions = job.snapshot(100, true, true);
  EXPECT_TRUE(has<SnapshotWhole>(actions));
  EXPECT_EQ(all<Finished>(actions).at(0).step, 100);
}

TEST(Coordinator, ADeathAtTheFinalSnapshotLetsSurvivorsWriteItAgain) {
  Job job(2);
  job.c.snapshot_part(0, 1, 100, 77, true, true);
  EXPECT_EQ(start_in(job.c.lost(1, Mark{1, 99})).from, From::kSamePhase);
  EXPECT_TRUE(has<Finished>(job.c.snapshot_part(0, 2, 100, 77, true, true)));
}

TEST(Coordinator, AMinorityWithAnotherHashIsFencedAndTheRestGoesBack) {
  Job job(3);
  job.snapshot(8);
  job.c.state_hash(0, 1, 50, 77);
  job.c.state_hash(1, 1, 50, 78);
  const Actions actions = job.c.state_hash(2, 1, 50, 77);
  ASSERT_EQ(all<Fence>(actions).size(), 1u);
  EXPECT_EQ(all<Fence>(actions)[0].rank, 1);
  EXPECT_EQ(start_in(actions).snapshot_step, 8);
  EXPECT_EQ(job.c.members(), (std::set<int>{0, 2}));
  EXPECT_TRUE(job.c.lost(1, Mark{1, 60}).empty());
}

TEST(Coordinator, ATieSendsEverybodyBackAndASecondOneGivesUp) {
  Job job(2);
  job.snapshot(8);
  const auto tie = [&] {
    job.c.snapshot_part(0, job.c.current().generation, 10, 77, false, false);
    return job.c.snapshot_part(1, job.c.current().generation, 10, 78, false, false);
  };
  const Actions first = tie();
  EXPECT_FALSE(has<SnapshotWhole>(first));
  EXPECT_FALSE(has<Fence>(first));
  EXPECT_EQ(start_in(first).snapshot_step, 8);
  EXPECT_EQ(job.c.members().size(), 2u);
  job.adopt();
  const Actions second = tie();
  ASSERT_TRUE(has<GiveUp>(second));
  EXPECT_NE(all<GiveUp>(second)[0].what.find("0, 1"), std::string::npos);
}

TEST(Coordinator, AWholeSnapshotBetweenTwoTiesForgivesTheFirst) {
  Job job(2);
  for (int64_t step : {10, 20}) {
    job.c.state_hash(0, job.c.current().generation, step, 77);
    EXPECT_TRUE(has<StartGeneration>(job.c.state_hash(1, job.c.current().generation, step, 78)));
    job.adopt();
    job.snapshot(step);
  }
}

TEST(Coordinator, AReplacementStartsFromTheSnapshotWhenAllHadDied) {
  Job job(2);
  job.snapshot(8);
  job.c.lost(0, Mark{1, 30});
  job.c.expect(0, 1);
  EXPECT_TRUE(job.c.lost(1, Mark{1, 31}).empty());
  job.c.expect(1, 1);
  EXPECT_TRUE(job.c.nobody_is_coming().empty());
  EXPECT_TRUE(job.c.arrived(0).empty());
  const GenerationStart start = start_in(job.c.arrived(1));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.members.size(), 2u);
}

TEST(Coordinator, GivesUpOnlyWhenNobodyIsComing) {
  Job job(1);
  EXPECT_TRUE(job.c.lost(0, Mark{1, 3}).empty());
  EXPECT_TRUE(has<GiveUp>(job.c.nobody_is_coming()));
}

TEST(Coordinator, ASnapshotIsAskedForOncePerRequest) {
  Job job(2);
  EXPECT_FALSE(all<AskSnapshot>(job.c.want_snapshot()).at(0).hold);
  EXPECT_TRUE(job.c.want_snapshot().empty());
  EXPECT_FALSE(has<AskSnapshot>(job.snapshot(5)));
  EXPECT_TRUE(has<AskSnapshot>(job.c.want_snapshot()));
}

TEST(Coordinator, AHeldRequestReplacesAPlainOne) {
  Job job(2);
  const uint64_t plain = all<AskSnapshot>(job.c.want_snapshot()).at(0).serial;
  const AskSnapshot held = all<AskSnapshot>(job.c.want_leave(1)).at(0);
  EXPECT_TRUE(held.hold);
  EXPECT_GT(held.serial, plain);
  EXPECT_TRUE(job.c.want_snapshot().empty());
}

TEST(Coordinator, MeasuredSpeedsMoveShardsOnceTheyHaveSettled) {
  Job job(2);
  const std::map<int, double> speeds{{0, 200}, {1, 100}};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(job.c.measured(speeds, 0.12, 0.1).empty());
  EXPECT_TRUE(all<AskSnapshot>(job.c.measured(speeds, 0.12, 0.1)).at(0).hold);
  EXPECT_TRUE(job.c.measured(speeds, 0.12, 0.1).empty());  // asked already
  EXPECT_EQ(start_in(job.snapshot(9, true)).members, (std::vector<ShardAssignment>{{0, {0, 16}}, {1, {16, 24}}}));
  EXPECT_TRUE(job.c.measured(speeds, 0.08, 0.1).empty());
}

TEST(Coordinator, ShardsStayWhereTheEndOfTheRunIsNearerThanTheGain) {
  Job job(2);
  const std::map<int, double> speeds{{0, 200}, {1, 100}};
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(job.c.measured(speeds, 0.12, 0.1, /*seconds_left=*/0.2).empty());
  job.c.measured(speeds, 0.12, 0.1, 20);  // twice in a row
  EXPECT_FALSE(job.c.measured(speeds, 0.12, 0.1, 20).empty());
}

TEST(Coordinator, ANewcomersGuessIsScaledToWhatOthersMeasured) {
  Job job(2);
  for (int i = 0; i < 3; ++i) job.c.measured({{0, 100}, {1, 100}}, 0.12, 0.1);
  job.c.expect(2, 1);
  job.c.arrived(2);
  EXPECT_EQ(start_in(job.snapshot(9, true)).members,
            (std::vector<ShardAssignment>{{0, {0, 8}}, {1, {8, 16}}, {2, {16, 24}}}));
}

TEST(Coordinator, AHotWorkerLosesShardsAtAHeldSnapshotAndGetsThemBack) {
  Job job(3);
  const auto asked = all<AskSnapshot>(job.c.want_shares({{1, 0.5}}));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(asked[0].hold);
  EXPECT_TRUE(job.c.want_shares({{1, 0.5}}).empty()) << "said once";
  const GenerationStart start = start_in(job.snapshot(5, true));
  ASSERT_EQ(start.members.size(), 3u);
  EXPECT_LT(start.members[1].range.size(), 6);
  EXPECT_EQ(start.from, From::kSnapshot);
  job.adopt();
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(job.c.measured({{0, 10}, {1, 10}, {2, 10}}, 1, 0.01).empty()) << "its speed alone would move them back";
  EXPECT_EQ(all<AskSnapshot>(job.c.want_shares({})).size(), 1u);
  EXPECT_EQ(start_in(job.snapshot(9, true)).members[1].range.size(), 8);
}

TEST(Coordinator, AShareOutlivesTheWorkerThatHadIt) {
  Job job(3);
  job.c.want_shares({{1, 0.3}});
  job.snapshot(5, true);
  job.adopt();
  job.c.lost(1, std::nullopt);
  job.c.expect(1, 1);
  job.c.arrived(1);
  job.adopt();
  EXPECT_LT(start_in(job.snapshot(7, true)).members[1].range.size(), 5);
}

TEST(Coordinator, AHeldRunWaitsAndGoesOnWhereItWas) {
  Job job(2);
  EXPECT_TRUE(all<AskSnapshot>(job.c.want_hold(true)).at(0).hold);
  const Actions held = job.snapshot(5, true);
  EXPECT_TRUE(has<SnapshotWhole>(held));
  EXPECT_FALSE(has<StartGeneration>(held));
  EXPECT_TRUE(job.c.holding());
  EXPECT_TRUE(job.c.want_snapshot().empty()) << "there is nothing new";
  const GenerationStart start = start_in(job.c.want_hold(false));
  EXPECT_EQ(start.from, From::kSnapshot);
  EXPECT_EQ(start.snapshot_step, 5);
  EXPECT_FALSE(job.c.holding());
}

TEST(Coordinator, AHoldThatIsTakenBackInTimeHoldsNobody) {
  Job job(2);
  job.c.want_hold(true);
  job.c.want_hold(false);
  EXPECT_TRUE(has<StartGeneration>(job.snapshot(5, true)));
}

TEST(Coordinator, AHeldRunCanBeStopped) {
  Job job(2);
  job.c.want_hold(true);
  job.snapshot(5, true);
  const auto finished = all<Finished>(job.c.want_stop());
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].step, 5);
}

// Of a lone worker: there is nobody to go on until another one comes.
TEST(Coordinator, ADeathThatLeavesAHeldRunEmptyWaitsForAWorkerAlsoWhenTheHoldEnds) {
  Job job(1);
  job.c.want_hold(true);
  job.snapshot(10, /*held=*/true);
  ASSERT_TRUE(job.c.holding());
  job.c.expect(1, 1);
  EXPECT_FALSE(has<StartGeneration>(job.c.lost(0, std::nullopt)));
  EXPECT_FALSE(has<StartGeneration>(job.c.want_hold(false)));
  const GenerationStart start = start_in(job.c.arrived(1));
  EXPECT_EQ(start.members, (std::vector<ShardAssignment>{{1, {0, 24}}}));
  EXPECT_EQ(start.snapshot_step, 10);
}

TEST(Coordinator, ADeathInAHeldRunGoesBackToItsSnapshotAndHoldsAgain) {
  Job job(3);
  job.c.want_hold(true);
  job.snapshot(5, true);
  const Actions actions = job.c.lost(1, Mark{1, 40});
  EXPECT_EQ(start_in(actions).from, From::kSnapshot);
  ASSERT_EQ(all<AskSnapshot>(actions).size(), 1u);
  EXPECT_TRUE(all<AskSnapshot>(actions)[0].hold);
  job.adopt();
  EXPECT_FALSE(has<StartGeneration>(job.snapshot(6, true)));
  EXPECT_TRUE(has<StartGeneration>(job.c.want_hold(false)));
}

}  // namespace
}  // namespace tandem
