#include "reduce/gloo_combine.h"

#include <gloo/context.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <random>

#include "reduce/mesh_trial.h"

namespace tandem {
namespace {

using namespace trial;

struct NeverAbandoned : Watch {
  bool abandoned(uint64_t, int64_t) const override { return false; }
};

constexpr int kMostMembers = 8, kMostPhases = 32;
struct Records {
  Seen seen[kMostPhases][kMostMembers];
};

void expect_equal_bits(const CombineTrial& trial, const std::string& what) {
  const auto want = expected(trial);
  const Shared<Records> records;
  SharedStore store;
  std::vector<pid_t> children;
  for (int me = 0; me < trial.members(); ++me) {
    children.push_back(start([&, me] {
      const NeverAbandoned watch;
      GlooCombine combine(trial.shards, trial.ranges, connect_mesh(loopback(me, trial.members()), store), 1, 0, watch);
      for (int phase = 0; phase < static_cast<int>(trial.phases.size()); ++phase)
        records->seen[phase][me] = run_phase(combine, trial, phase, trial.ranges[me], {&trial.ranges[me], 1},
                                             mix(trial.seed + phase * 8 + me))[0];
    }));
  }
  for (pid_t child : children) ASSERT_EQ(end_of(child), 0) << what;
  for (size_t phase = 0; phase < trial.phases.size(); ++phase)
    for (int me = 0; me < trial.members(); ++me)
      ASSERT_EQ(records->seen[phase][me], want[phase][me]) << what << ", phase " << phase << ", member " << me;
}

TEST(GlooCombine, AnyMembersRangesAndVisitsGiveTheBitsOfOneProcess) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 20; ++round) {
    CombineTrial trial;
    trial.seed = 2000 + round;
    const int members = 1 + round % 5;
    trial.shards = round % 3 == 0 ? 24 : members + static_cast<int>(random() % 30);
    trial.ranges = random_ranges(trial.shards, members, random());
    const int64_t lengths[] = {0, 1, 15, 16, 17, 1000, 4097, 33333};
    for (int phase = 0; phase < 12; ++phase) {
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
    expect_equal_bits(trial, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

TEST(GlooCombine, VectorsOfSeveralBlocksAndLargeMail) {
  CombineTrial trial{.seed = 6, .shards = 7, .ranges = {{0, 3}, {3, 4}, {4, 7}}, .phases = {}};
  trial.phases.push_back({.layout = {.floats = 2'500'003, .exchange = true}, .messages = 1, .message_bytes = 900'000});
  trial.phases.push_back({.layout = {.floats = 5}});
  trial.phases.push_back({.layout = {.floats = 2'500'003}});
  trial.phases.push_back({.layout = {.floats = 131'073}});
  expect_equal_bits(trial, "blocks");
}

struct Fates {
  std::atomic<int> phases_done[kMostMembers];
  std::atomic<bool> abandoned;
};

TEST(GlooCombine, WhatAMemberWithOneShardSendsAheadChangesNoBit) {
  CombineTrial trial{.seed = 8, .shards = 4, .ranges = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, .phases = {}};
  for (int phase = 0; phase < 20; ++phase)
    trial.phases.push_back({.layout = {.floats = phase % 2 ? 1'700'003 : 140'001, .counts = 2, .maxima = 1}});
  expect_equal_bits(trial, "ahead");
}

TEST(GlooCombine, AKilledPeerEndsTheOthersWaits) {
  for (int at_phase : {0, 2}) {
    SharedStore store;
    const Shared<Fates> fates;
    std::vector<pid_t> children;
    for (int me = 0; me < 3; ++me) {
      children.push_back(start([&, me] {
        const NeverAbandoned watch;
        GlooCombine combine(3, {{0, 1}, {1, 2}, {2, 3}}, connect_mesh(loopback(me, 3), store), 1, 0, watch);
        const std::vector<float> values(100'000, 1.f);
        for (int phase = 0; phase < 100; ++phase) {
          combine.begin({.floats = 100'000});
          combine.add(me, {values, {}, {}, {}});
          if (me == 1 && phase == at_phase) raise(SIGKILL);
          combine.finish();
          ++fates->phases_done[me];
        }
      }));
    }
    ASSERT_EQ(end_of(children[1]), 128 + SIGKILL);
    for (int me : {0, 2}) {
      EXPECT_EQ(end_of(children[me]), kMembersChanged);
      EXPECT_EQ(fates->phases_done[me], at_phase);
    }
  }
}

struct AbandonedByTest : Watch {
  explicit AbandonedByTest(Fates& f) : fates(f) {}
  bool abandoned(uint64_t, int64_t) const override { return fates.abandoned; }
  Fates& fates;
};

TEST(GlooCombine, AFrozenPeerIsLeftWhenTheWatchSaysSo) {
  SharedStore store;
  const Shared<Fates> fates;
  std::vector<pid_t> children;
  for (int me = 0; me < 3; ++me) {
    children.push_back(start([&, me] {
      const AbandonedByTest watch(*fates);
      GlooCombine combine(3, {{0, 1}, {1, 2}, {2, 3}}, connect_mesh(loopback(me, 3), store), 1, 0, watch);
      const std::vector<float> values(1'000'000, 1.f);
      for (int phase = 0; phase < 100; ++phase) {
        combine.begin({.floats = 1'000'000});
        combine.add(me, {values, {}, {}, {}});
        if (me == 1 && phase == 1) raise(SIGSTOP);
        combine.finish();
      }
    }));
  }
  int status = 0;
  ASSERT_EQ(waitpid(children[1], &status, WUNTRACED), children[1]);
  ASSERT_TRUE(WIFSTOPPED(status));
  fates->abandoned = true;
  for (int me : {0, 2}) EXPECT_EQ(end_of(children[me]), kMembersChanged);
  kill(children[1], SIGKILL);
  EXPECT_EQ(end_of(children[1]), 128 + SIGKILL);
}

TEST(GlooCombine, AMemberThatEndsAfterTheLastCombineTakesNothingFromTheOthers) {
  for (int round = 0; round < 10; ++round) {
    CombineTrial trial{.seed = 8, .shards = 3, .ranges = {{0, 1}, {1, 2}, {2, 3}}, .phases = {}};
    trial.phases.push_back(
        {.layout = {.floats = 300'000, .counts = 1, .exchange = true}, .messages = 2, .message_bytes = 900});
    expect_equal_bits(trial, "round " + std::to_string(round));
  }
}

}  // namespace
}  // namespace tandem
