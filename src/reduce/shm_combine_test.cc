#include "reduce/shm_combine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <random>

#include "reduce/combine_trial.h"
#include "reduce/gpu_combine.h"
#include "reduce/join.h"

namespace tandem {
namespace {

using namespace trial;
using Point = ShmCombine::Point;

struct NeverAborted : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

ShmShape shape_of(const CombineTrial& trial, const std::vector<ShardRange>& ranges, uint64_t exchange_bytes = 4 << 20) {
  ShmShape shape;
  shape.shards = trial.shards;
  shape.ranges = ranges;
  shape.max_floats = trial.max(&ContributionLayout::floats);
  shape.max_counts = trial.max(&ContributionLayout::counts);
  shape.max_maxima = trial.max(&ContributionLayout::maxima);
  for (const TrialPhase& p : trial.phases) shape.exchange |= p.layout.exchange;
  shape.exchange_bytes = exchange_bytes;
  return shape;
}

SharedMemory segment_for(const ShmShape& shape) { return SharedMemory::create("test", shm_combine_bytes(shape)); }

// As a worker gets it: by descriptor.
SharedMemory view(const SharedMemory& segment) {
  return SharedMemory::adopt(dup(segment.fd()), segment.bytes().size());
}

constexpr int kMostProcesses = 8, kMostShmPhases = 16;
struct ShmRecords {
  Seen seen[kMostShmPhases][kMostProcesses];
};

// Every member in a process of its own; each member's record of each phase must be LocalCombine's.
// With GPUs, the vectors lie in a device's memory (emulated on the CPU) and only partial sums travel.
void expect_equal_bits_over_shm(const CombineTrial& trial, uint64_t exchange_bytes, const std::string& what,
                                bool gpus = false) {
  const auto want = expected(trial);
  const ShmShape shape = shape_of(trial, trial.ranges, exchange_bytes);
  const SharedMemory segment = segment_for(shape);
  const Shared<ShmRecords> records;
  const NeverAborted watch;
  std::vector<pid_t> children;
  for (int me = 0; me < trial.members(); ++me) {
    children.push_back(start([&, me] {
      std::unique_ptr<Combine> combine = std::make_unique<ShmCombine>(shape, me, view(segment), 1, 0, watch);
      if (gpus)
        combine = std::make_unique<GpuCombine>(trial.shards, trial.ranges[me], std::move(combine), cpu_device());
      for (int phase = 0; phase < static_cast<int>(trial.phases.size()); ++phase)
        records->seen[phase][me] = run_phase(*combine, trial, phase, trial.ranges[me], {&trial.ranges[me], 1},
                                             mix(trial.seed + phase * 8 + me))[0];
    }));
  }
  for (pid_t child : children) ASSERT_EQ(end_of(child), 0) << what;
  for (size_t phase = 0; phase < trial.phases.size(); ++phase)
    for (int me = 0; me < trial.members(); ++me)
      ASSERT_EQ(records->seen[phase][me], want[phase][me]) << what << ", phase " << phase << ", member " << me;
  for (int me = 0; me < trial.members(); ++me)
    ASSERT_EQ(done_mark(segment, me), trial.first_sequence_of(static_cast<int>(trial.phases.size())) - 1);
}

TEST(ShmCombine, AnyMembersRangesAndVisitsGiveTheBitsOfOneProcess) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 120; ++round) {
    CombineTrial trial;
    trial.seed = 1000 + round;
    const int members = 1 + round % 8;
    trial.shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 30);
    trial.shards = std::max(trial.shards, members);
    trial.ranges = random_ranges(trial.shards, members, random());
    const int64_t lengths[] = {0, 1, 15, 16, 17, 1000, 4097, 33333};
    for (int phase = 0; phase < 6; ++phase) {
      TrialPhase p;
      p.layout.floats = lengths[random() % 8];
      p.layout.counts = static_cast<int64_t>(random() % 4);
      p.layout.maxima = static_cast<int64_t>(random() % 4);
      p.layout.exchange = random() % 2 == 0;
      p.messages = static_cast<int>(random() % 3);
      p.message_bytes = random() % 2 ? 40 : 3000;
      for (int m = static_cast<int>(random() % 3); m-- > 0;)
        p.all_reduces.push_back(static_cast<int64_t>(random() % 4 ? random() % 40 : 20000));
      trial.phases.push_back(p);
    }
    expect_equal_bits_over_shm(trial, random() % 2 ? 4 << 20 : 256, "round " + std::to_string(round), round % 5 == 4);
    if (HasFatalFailure()) return;
  }
}

TEST(ShmCombine, ALargeVectorAndMailOfManyTimesTheArea) {
  CombineTrial trial{.seed = 5, .shards = 6, .ranges = {{0, 2}, {2, 3}, {3, 6}}, .phases = {}};
  trial.phases.push_back({.layout = {.floats = 1'000'003, .exchange = true}, .messages = 2, .message_bytes = 300'000});
  trial.phases.push_back({.layout = {.floats = 3, .exchange = true}});
  trial.phases.push_back({.layout = {.exchange = true}, .messages = 3, .message_bytes = 200'000});
  expect_equal_bits_over_shm(trial, 64 << 10, "rounds");
}

TEST(ShmCombine, VectorsThatAreWrittenPastTheCache) {
  CombineTrial trial{.seed = 15, .shards = 5, .ranges = {{0, 1}, {1, 5}}, .phases = {}};
  for (int64_t floats : {1'300'001, 1'048'576}) trial.phases.push_back({.layout = {.floats = floats}});
  expect_equal_bits_over_shm(trial, 64, "large");
}

TEST(ShmCombine, OnlyOneOfThemHasMuchToSend) {
  std::vector<ExchangeMessage> messages;
  const ShmShape shape{.shards = 3, .ranges = {{0, 1}, {1, 2}, {2, 3}}, .exchange = true, .exchange_bytes = 100};
  const SharedMemory segment = segment_for(shape);
  const NeverAborted watch;
  std::vector<pid_t> children;
  for (int me = 0; me < 3; ++me) {
    children.push_back(start([&, me] {
      ShmCombine combine(shape, me, view(segment), 1, 0, watch);
      for (int phase = 0; phase < 4; ++phase) {
        std::vector<ExchangeMessage> sent;
        if (phase % 2 == 0 && me == 2) sent = {{2, 0, std::vector<std::byte>(5000, std::byte(phase))}, {2, 2, {}}};
        combine.begin({.exchange = true});
        combine.add(me, {{}, {}, {}, sent});
        combine.finish();
        const auto got = combine.inbox(me).messages();
        const size_t want = phase % 2 == 0 && me != 1 ? 1 : 0;
        if (got.size() != want) throw std::runtime_error("messages are missing or left over");
        if (me == 0 && want && got[0].row != std::vector<std::byte>(5000, std::byte(phase)))
          throw std::runtime_error("a message was changed on its way");
        combine.clear_inboxes();
        if (!combine.inbox(me).messages().empty()) throw std::runtime_error("cleared inboxes are not empty");
      }
    }));
  }
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
}

// ---- waiting: a member that is late, at places where the others must not go on without it ----

struct Arrivals {
  std::atomic<int> published, done;
  std::atomic<pid_t> pid[3];
};

Total one_phase(ShmCombine& combine, int shard, std::vector<float>& values, const std::function<void()>& before_add) {
  combine.begin({.floats = static_cast<int64_t>(values.size())});
  before_add();
  combine.add(shard, {values, {}, {}, {}});
  return combine.finish();
}

// The others wait for this one now; if they did not, they would have gone on to the end.
void until_others_wait_or_end(const Arrivals& arrivals) {
  for (int other : {1, 2}) until_asleep_or_gone(arrivals.pid[other]);
}

TEST(ShmCombine, NobodyReadsPartialsThatAreNotPublishedNorATotalThatIsNotDone) {
  const ShmShape shape{.shards = 3, .ranges = {{0, 1}, {1, 2}, {2, 3}}, .max_floats = 300};
  for (bool late_in_adding : {true, false}) {
    const SharedMemory segment = segment_for(shape);
    const Shared<Arrivals> arrivals;
    const NeverAborted watch;
    std::vector<pid_t> children;
    for (int me = 0; me < 3; ++me) {
      children.push_back(start([&, me] {
        arrivals->pid[me] = getpid();
        ShmCombine combine(shape, me, view(segment), 1, 0, watch);
        combine.at_points([&](Point point) {
          if (me > 0 && point == Point::kPublished) ++arrivals->published;
          if (me > 0 && point == Point::kDone) ++arrivals->done;
          if (me == 0 && point == Point::kPublished && !late_in_adding && combine.next_sequence() > 0) {
            while (arrivals->done < 4) sched_yield();  // before its part of the total
            until_others_wait_or_end(*arrivals);
          }
        });
        for (int phase = 0; phase < 2; ++phase) {
          std::vector<float> values(300, static_cast<float>(1 + phase));
          const Total total = one_phase(combine, me, values, [&] {
            if (me != 0 || phase == 0 || !late_in_adding) return;
            while (arrivals->published < 4) sched_yield();  // its partial is not there yet
            until_others_wait_or_end(*arrivals);
          });
          for (float x : total.floats)
            if (x != 3.f * static_cast<float>(1 + phase)) throw std::runtime_error("a total of something else");
        }
      }));
    }
    for (pid_t child : children) EXPECT_EQ(end_of(child), 0) << late_in_adding;
  }
}

TEST(ShmCombine, WaitingIsCounted) {
  const ShmShape shape{.shards = 2, .ranges = {{0, 1}, {1, 2}}, .max_floats = 1};
  const SharedMemory segment = segment_for(shape);
  const Shared<Arrivals> arrivals;
  const NeverAborted watch;
  std::vector<pid_t> children;
  for (int me = 0; me < 2; ++me) {
    children.push_back(start([&, me] {
      ShmCombine combine(shape, me, view(segment), 1, 0, watch);
      std::vector<float> values{1};
      combine.at_points([&](Point point) {
        arrivals->pid[me] = getpid();
        if (point == Point::kPublished) ++arrivals->published;
      });
      one_phase(combine, me, values, [&] {
        if (me != 0) return;
        while (arrivals->published == 0) sched_yield();
        until_asleep_or_gone(arrivals->pid[1]);
        const auto start = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(10)) sched_yield();
      });
      if (me == 1 && combine.waited_seconds() < 0.01) throw std::runtime_error("10 ms of waiting were not counted");
    }));
  }
  for (pid_t child : children) EXPECT_EQ(end_of(child), 0);
}

// ---- members that die ----

struct Revocation {  // as fleet/worker_page.h keeps it
  std::atomic<uint64_t> word;
  void revoke(uint64_t generation, int64_t cut) { word = generation << 40 | static_cast<uint64_t>(cut + 1); }
};

struct RevokedByTest : Watch {
  explicit RevokedByTest(Revocation& r) : revocation(r) {}
  bool abandoned(uint64_t generation, int64_t sequence) const override {
    const uint64_t word = revocation.word;
    return generation <= (word >> 40) && sequence >= static_cast<int64_t>(word & ((uint64_t{1} << 40) - 1));
  }
  Revocation& revocation;
};

struct Life {
  ShmRecords records;
  Revocation revocation;
  std::atomic<int64_t> stopped_at[kMostProcesses];  // next_sequence() when MembersChanged came
  std::atomic<bool> waiting, go_on;
};

CombineTrial mortal_trial() {
  CombineTrial trial{.seed = 77, .shards = 12, .ranges = {{0, 3}, {3, 8}, {8, 12}}, .phases = {}};
  trial.phases.push_back({.layout = {.floats = 1000, .counts = 2, .maxima = 1}});
  trial.phases.push_back(
      {.layout = {.floats = 777, .counts = 1, .exchange = true}, .messages = 2, .message_bytes = 90});
  trial.phases.push_back({.layout = {.floats = 1000}, .all_reduces = {5, 20000}});
  trial.phases.push_back({.layout = {.floats = 64, .maxima = 2}, .all_reduces = {1}});
  return trial;
}

// What a worker does: phases in generation 1 until they are abandoned, then the same phase again with other members.
void work(const CombineTrial& trial, int rank, const ShmShape& old_shape, const SharedMemory& old_segment,
          const ShmShape& new_shape, const SharedMemory& new_segment, int new_member, Life& life, int victim,
          int64_t die_at, Point die_where) {
  const RevokedByTest watch(life.revocation);
  const int phases = static_cast<int>(trial.phases.size());
  int phase = 0;
  ShmCombine before(old_shape, rank, view(old_segment), 1, 0, watch);
  before.at_points([&](Point point) {
    if (rank == victim && before.next_sequence() == die_at && point == die_where) raise(SIGKILL);
  });
  try {
    for (; phase < phases; ++phase)
      life.records.seen[phase][rank] =
          run_phase(before, trial, phase, old_shape.ranges[rank], {&old_shape.ranges[rank], 1}, rank + 1)[0];
  } catch (const MembersChanged&) {
  }
  life.stopped_at[rank] = before.next_sequence();
  const ShardRange range = new_shape.ranges[new_member];
  ShmCombine combine(new_shape, new_member, view(new_segment), 2, trial.first_sequence_of(phase), watch);
  for (; phase < phases; ++phase)
    life.records.seen[phase][rank] = run_phase(combine, trial, phase, range, {&range, 1}, rank + 5)[0];
}

TEST(ShmCombine, ADeathAtAnyStageEndsEverybodyAtTheSameSequenceNumberAndTheNextGenerationGoesOnWithTheSameBits) {
  const CombineTrial trial = mortal_trial();
  const auto want = expected(trial);
  CombineTrial smaller = trial;
  smaller.ranges = {{0, 7}, {7, 12}};
  const auto want_smaller = expected(smaller);
  const int64_t sequences = trial.first_sequence_of(4);
  for (int victim = 0; victim < 3; ++victim) {
    for (int64_t sequence = 0; sequence < sequences; ++sequence) {
      const bool is_meet = sequence + 1 != trial.first_sequence_of(trial.phase_of(sequence) + 1);
      for (Point where : {Point::kBeforePublish, Point::kPublished, Point::kReduced, Point::kDone}) {
        if (is_meet && (where == Point::kPublished || where == Point::kReduced)) continue;
        const std::string what = "rank " + std::to_string(victim) + " at sequence number " + std::to_string(sequence) +
                                 ", point " + std::to_string(static_cast<int>(where));
        const ShmShape old_shape = shape_of(trial, trial.ranges), new_shape = shape_of(trial, smaller.ranges);
        const SharedMemory old_segment = segment_for(old_shape), new_segment = segment_for(new_shape);
        const Shared<Life> life;
        std::vector<pid_t> children;
        for (int rank = 0; rank < 3; ++rank) {
          const int new_member = rank - (rank > victim);
          children.push_back(start([&, rank, new_member] {
            work(trial, rank, old_shape, old_segment, new_shape, new_segment, new_member, *life, victim, sequence,
                 where);
          }));
        }
        ASSERT_EQ(end_of(children[victim]), 128 + SIGKILL) << what;
        const std::optional<int64_t> mark = done_mark(old_segment, victim);
        const int64_t want_mark = where == Point::kDone ? sequence : sequence - 1;
        ASSERT_EQ(mark.value_or(-1), want_mark) << what;
        ASSERT_EQ(mark.has_value(), want_mark >= 0) << what;
        life->revocation.revoke(1, want_mark);
        wake_all(old_segment);
        const int phase = trial.phase_of(want_mark + 1);  // the first that is not complete, if there is one
        for (int rank = 0; rank < 3; ++rank) {
          if (rank == victim) continue;
          ASSERT_EQ(end_of(children[rank]), 0) << what;
          ASSERT_EQ(life->stopped_at[rank], want_mark + 1) << what << ": what was complete, by rank " << rank;
          for (int p = 0; p < 4; ++p)
            ASSERT_EQ(life->records.seen[p][rank], p < phase ? want[p][rank] : want_smaller[p][rank - (rank > victim)])
                << what << ": phase " << p << " of rank " << rank;
        }
      }
    }
  }
}

TEST(ShmCombine, AMemberThatMayStillLiveIsClosedAndThenCanCompleteNothing) {
  const ShmShape shape{.shards = 2, .ranges = {{0, 1}, {1, 2}}, .max_floats = 8};
  const SharedMemory segment = segment_for(shape);
  const Shared<Life> life;
  std::vector<pid_t> children;
  for (int me = 0; me < 2; ++me) {
    children.push_back(start([&, me] {
      const RevokedByTest watch(life->revocation);
      const NeverAborted deaf;  // it does not hear that it is out
      ShmCombine combine(shape, me, view(segment), 1, 5, me == 0 ? static_cast<const Watch&>(deaf) : watch);
      combine.at_points([&](Point point) {
        if (me != 0 || point != Point::kReduced || combine.next_sequence() != 6) return;
        life->waiting = true;
        while (!life->go_on) sched_yield();
      });
      for (;;) {
        std::vector<float> values(8, 1.f);
        one_phase(combine, me, values, [] {});
        life->stopped_at[me] = combine.next_sequence();
      }
    }));
  }
  while (!life->waiting) sched_yield();
  EXPECT_EQ(done_mark(segment, 0), 5);
  EXPECT_EQ(close_mark(segment, 0), 5);
  life->go_on = true;
  EXPECT_EQ(end_of(children[0]), kMembersChanged) << "it wakes up, and its word is not taken";
  EXPECT_EQ(done_mark(segment, 0), 5);
  life->revocation.revoke(1, 5);
  wake_all(segment);
  EXPECT_EQ(end_of(children[1]), kMembersChanged);
  EXPECT_EQ(life->stopped_at[1], 6) << "sequence number 5 was complete, 6 was not";
}

TEST(ShmCombine, ALongPhaseStopsAtItsNextShardWhenTheMembersHaveChanged) {
  const ShmShape shape{.shards = 4, .ranges = {{0, 2}, {2, 4}}, .max_floats = 1};
  const SharedMemory segment = segment_for(shape);
  Revocation revocation{};
  const RevokedByTest watch(revocation);
  const std::vector<float> one{1};
  ShmCombine combine(shape, 0, view(segment), 3, 40, watch);
  combine.begin({.floats = 1});
  combine.add(0, {one, {}, {}, {}});
  revocation.revoke(2, 40);  // another generation
  combine.add(1, {one, {}, {}, {}});
  revocation.revoke(3, 40);  // this sequence number is still to be finished
  combine.begin({.floats = 1});
  combine.add(0, {one, {}, {}, {}});
  revocation.revoke(3, 39);
  EXPECT_THROW(combine.add(1, {one, {}, {}, {}}), MembersChanged);
  EXPECT_THROW(combine.finish(), MembersChanged);
  EXPECT_THROW(combine.begin({.floats = 1}), MembersChanged);
  std::vector<double> value{1};
  const std::vector<std::span<double>> values{value};
  const std::vector<int> shards{0};
  EXPECT_THROW(combine.all_reduce(shards, values), MembersChanged);
  EXPECT_EQ(done_mark(segment, 0), std::nullopt);
  EXPECT_EQ(combine.next_sequence(), 40);
}

TEST(ShmCombine, OneMemberWaitsForNobodyAndMarksWhatItDid) {
  const ShmShape shape{.shards = 1, .ranges = {{0, 1}}, .max_floats = 4};
  const SharedMemory segment = segment_for(shape);
  const NeverAborted watch;
  ShmCombine combine(shape, 0, view(segment), 1, 9, watch);
  std::vector<float> values{1, 2, 3, 4};
  const Total total = one_phase(combine, 0, values, [] {});
  EXPECT_EQ(total.floats.data(), values.data()) << "one shard is its own total, as in LocalCombine";
  EXPECT_EQ(done_mark(segment, 0), 9);
  EXPECT_EQ(combine.begun_at(), 9);
  EXPECT_EQ(combine.next_sequence(), 10);
  EXPECT_EQ(combine.waited_seconds(), 0);
}

TEST(ShmCombine, WhatDoesNotFitItsSegmentIsRefused) {
  const ShmShape shape{.shards = 2, .ranges = {{0, 1}, {1, 2}}, .max_floats = 4};
  const SharedMemory segment = segment_for(shape);
  const NeverAborted watch;
  ShmCombine combine(shape, 0, view(segment), 1, 0, watch);
  EXPECT_THROW(combine.begin({.floats = 5}), std::logic_error);
  EXPECT_THROW(combine.begin({.counts = 1}), std::logic_error);
  EXPECT_THROW(combine.begin({.maxima = 1}), std::logic_error);
  EXPECT_THROW(combine.begin({.exchange = true}), std::logic_error);
  EXPECT_THROW((void)combine.inbox(1), std::out_of_range);
  combine.begin({.floats = 4});
  EXPECT_THROW(combine.finish(), std::logic_error) << "its shard is missing";
  ShmShape larger = shape;
  larger.max_floats = 1 << 20;
  EXPECT_THROW(ShmCombine(larger, 0, view(segment), 1, 0, watch), std::logic_error);
  for (const auto& ranges : std::vector<std::vector<ShardRange>>{{{0, 1}}, {{1, 2}, {0, 1}}, {{0, 1}, {0, 2}}})
    EXPECT_THROW(shm_combine_bytes({.shards = 2, .ranges = ranges}), std::logic_error);
  EXPECT_THROW((void)done_mark(segment, 1 << 20), std::logic_error);
}

TEST(Join, SlicesCoverTheVectorInWholeCacheLines) {
  for (int64_t n : {0, 1, 15, 16, 17, 100, 6291456, 6291457})
    for (int members = 1; members <= 9; ++members) {
      int64_t at = 0;
      for (int m = 0; m < members; ++m) {
        const auto [first, last] = slice_of(n, members, m);
        ASSERT_EQ(first, at);
        ASSERT_TRUE(first % 16 == 0 || first == n);
        ASSERT_LE(last - first, n / members + 32);
        at = last;
      }
      ASSERT_EQ(at, n);
    }
}

}  // namespace
}  // namespace tandem
