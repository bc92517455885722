#include "explain/explain.h"

#include <gtest/gtest.h>

#include <numeric>

#include "explain/read_run.h"

namespace tandem {
namespace {

// A worker that did 100 steps; seconds are those of one step.
RankRow worker(int rank, double work, double combine = 0, double load = 0) {
  RankRow row{.rank = rank, .device = "cpu:" + std::to_string(rank), .shards = 1};
  row.times = {.steps = 100,
               .step = 100 * (work + load + combine + 0.0005),
               .work = 100 * work,
               .load = 100 * load,
               .combine = 100 * combine,
               .update = 0.02,
               .operations = 100,
               .counted_steps = 1,
               .operation = 2e-6};
  return row;
}

Evidence run_of(std::vector<RankRow> ranks) {
  Evidence evidence{
      .ranks = std::move(ranks), .run = "tiny-1", .recipe = "tiny", .batch = 256, .shards = 2, .cores = 8};
  evidence.loader_threads = 1;
  return evidence;
}

std::string first(const Evidence& evidence) {
  const Explanation e = explain(evidence);
  return e.findings.empty() ? "healthy" : cause_name(e.findings[0].cause);
}

TEST(Explain, SharesAddUpToTheStep) {
  for (const Evidence& evidence :
       {run_of({worker(0, 0.01)}), run_of({worker(0, 0.01, 0.02), worker(1, 0.02, 0.004, 0.003)}),
        run_of({worker(0, 0.01, 0.01, 0.2), worker(1, 0.03), worker(2, 0.002, 0.05)})}) {
    const Explanation e = explain(evidence);
    const double sum = std::accumulate(e.shares.begin(), e.shares.end(), 0.0,
                                       [](double s, const auto& part) { return s + part.second; });
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

TEST(Explain, ARunThatComputesIsHealthyAndSaysSo) {
  const Explanation e = explain(run_of({worker(0, 0.02, 0.001), worker(1, 0.0195, 0.0015)}));
  EXPECT_TRUE(e.findings.empty());
  EXPECT_EQ(e.verdict().substr(0, 8), "healthy:");
}

TEST(Explain, WhoComesLastTellsTheTransferAndTheOthersWaitForIt) {
  const Explanation e = explain(run_of({worker(0, 0.01, 0.0105), worker(1, 0.02, 0.0005)}));
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].cause, Cause::kImbalance);
  EXPECT_EQ(e.findings[0].who, 1);
  EXPECT_NE(e.findings[0].text.find("worker 0 (cpu:0) waits for worker 1 (cpu:1)"), std::string::npos)
      << e.findings[0].text;
  EXPECT_LT(e.share("communication"), 0.05);
}

TEST(Explain, ASlowLinkIsCommunicationNotWaiting) {
  EXPECT_EQ(first(run_of({worker(0, 0.01, 0.012), worker(1, 0.0101, 0.0118)})), "communication");
}

TEST(Explain, WaitingForDataIsTheLoaderAndTheThreadsThatWouldServeAreNamed) {
  const Explanation e = explain(run_of({worker(0, 0.01, 0, 0.03)}));
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].cause, Cause::kLoader);
  EXPECT_EQ(e.findings[0].command, "tandem resume tiny-1 --loader-threads 4 --set loader.prefetch=4");
}

TEST(Explain, ThrottlingTakesTheWaitingThatItCauses) {
  Evidence evidence = run_of({worker(0, 0.01, 0.0105), worker(1, 0.02, 0.0005)});
  evidence.ranks[0].gpu = 0;
  evidence.ranks[1].gpu = 1;
  evidence.gpus = {{.index = 0}, {.index = 1, .throttled = 1, .clock = 0.5, .reasons = {"thermal_hw"}}};
  const Explanation e = explain(evidence);
  ASSERT_EQ(e.findings.size(), 1u);
  EXPECT_EQ(e.findings[0].cause, Cause::kThrottling);
  EXPECT_NE(e.findings[0].text.find("GPU 1"), std::string::npos);
}

TEST(Explain, AGpuBelowItsPowerLimitIsNotNamedForAFewPercent) {
  Evidence evidence = run_of({worker(0, 0.02)});
  evidence.ranks[0].gpu = 0;
  evidence.gpus = {{.index = 0, .throttled = 1, .clock = 0.86, .reasons = {"power_cap"}}};
  EXPECT_EQ(first(evidence), "healthy");
}

TEST(Explain, FewRowsAreASmallBatchAndManyTinyPiecesAreLaunches) {
  Evidence evidence = run_of({worker(0, 0.0004)});
  evidence.ranks[0].times.operations = 150;
  evidence.batch = 4;
  EXPECT_EQ(first(evidence), "small-batch");
  EXPECT_NE(explain(evidence).findings[0].command.find("--batch-size"), std::string::npos);
  evidence.ranks[0].times.step = 0.05;  // nothing but the shards
  evidence.batch = 192;
  evidence.shards = 24;
  const Explanation e = explain(evidence);
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].cause, Cause::kLaunches);
  EXPECT_EQ(e.findings[0].command, "tandem train tiny --set shards=1");
}

// Figures of docs/design.md: the DQN's step took 3.9 ms eagerly and 0.325 ms as one graph on one H200.
TEST(Explain, OnAGpuLaunchesAreTheHostsTimeInWhichTheGpuHasNothingToDo) {
  Evidence eager = run_of({worker(0, 0.0039)});
  eager.ranks[0].on_gpu = true;
  eager.ranks[0].gpu = 0;
  eager.ranks[0].times.gpu_wait = 100 * 0.0002;
  EXPECT_EQ(first(eager), "launches");
  Evidence graph = run_of({worker(0, 0.000325)});
  graph.ranks[0].on_gpu = true;
  graph.ranks[0].times.gpu_wait = 100 * 0.0003;
  graph.ranks[0].times.step = graph.ranks[0].times.work + 0.003;
  graph.ranks[0].times.update = 0;
  EXPECT_EQ(first(graph), "healthy");
  EXPECT_NE(explain(graph).hint.find("--precision bf16"), std::string::npos);
}

TEST(Explain, GpusThatHaveNothingToDoAreNamed) {
  Evidence evidence = run_of({worker(0, 0.02)});
  evidence.ranks[0].gpu = 0;
  evidence.idle_gpus = {1, 2};
  evidence.live = true;
  const Explanation e = explain(evidence);
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].text, "only GPU 0 is busy; GPU 1, GPU 2 have nothing to do");
  EXPECT_EQ(e.findings[0].command, "tandem join tiny-1 --devices cuda:1,cuda:2");
}

TEST(Explain, AWorkerWithoutShardsIsIdle) {
  RankRow spare{.rank = 2, .device = "cpu:2", .shards = 0};
  const Explanation e = explain(run_of({worker(0, 0.02, 0.001), worker(1, 0.02, 0.001), spare}));
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].cause, Cause::kIdle);
  EXPECT_NEAR(e.share("idle"), 1.0 / 3, 1e-9);
}

TEST(Explain, WorkersThatAreLateByTurnsAreNotCalledUnequal) {
  Evidence evidence = run_of({worker(0, 0.01, 0.006), worker(1, 0.0101, 0.006)});
  for (RankRow& row : evidence.ranks) row.times.late = 100 * 0.0055;
  EXPECT_EQ(first(evidence), "uneven");
  EXPECT_EQ(explain(evidence).share("waiting") < 0.05, true);
}

TEST(Explain, WaitingForACoreIsCalledCrowdedAndWhoHadItIsNamed) {
  Evidence evidence = run_of({worker(0, 0.02)});
  evidence.ranks[0].times.delay = 100 * 0.008;
  EXPECT_EQ(first(evidence), "crowded");
  EXPECT_NEAR(explain(evidence).share("crowded"), 0.008 / 0.0205, 0.001);
  EXPECT_EQ(explain(evidence).findings[0].command.substr(0, 3), "ps ");
  evidence.others = {{4711, "cc1plus", 1.9}, {4712, "ld", 0.5}};
  const SlowDown named = explain(evidence).findings[0];
  EXPECT_EQ(named.text, "other programs take the cores: 39 % of each step waits for a core");
  EXPECT_EQ(named.why, "cc1plus (process 4711) took 1.9 cores, ld (process 4712) took 0.5 cores");
  EXPECT_EQ(named.command.substr(0, 3), "ps ") << "it is over: these numbers may be others' by now";
  evidence.live = evidence.others_now = true;
  EXPECT_EQ(explain(evidence).findings[0].command, "renice -n 19 -p 4711 4712");
  evidence.ranks[0].times.delay = 100 * 0.003;
  EXPECT_EQ(first(evidence), "healthy") << "a tenth is nothing to complain of";
}

TEST(Explain, MoreWorkersThanCoresTakeEachOthers) {
  Evidence evidence = run_of({worker(0, 0.02, 0.002), worker(1, 0.02, 0.002)});
  for (RankRow& row : evidence.ranks) row.times.delay = 100 * 0.01;
  evidence.cores = 1;
  ASSERT_EQ(first(evidence), "crowded");
  EXPECT_EQ(explain(evidence).findings[0].command, "tandem resume tiny-1 --devices cpu:1");
}

TEST(Explain, BatchesThatAreMadeOnTheWorkersOwnCoresAreNoCrowd) {
  Evidence evidence = run_of({worker(0, 0.02, 0.001), worker(1, 0.02, 0.001)});
  evidence.cores = 2;
  for (RankRow& row : evidence.ranks) row.times.delay = 100 * 0.006, row.times.made = 100 * 0.006 / 8;
  EXPECT_EQ(first(evidence), "healthy");
  evidence.others = {{4711, "cc1plus", 0.6}};
  EXPECT_EQ(first(evidence), "crowded");
}

TEST(Explain, InACrowdALateHandOverIsNotTheLoadersFault) {
  Evidence evidence = run_of({worker(0, 0.02, 0, 0.02)});  // half of the step, and no core is free
  evidence.ranks[0].times.made = 1;
  evidence.idle_cores = 0;
  EXPECT_EQ(first(evidence), "loader");
  evidence.ranks[0].times.delay = 100 * 0.01;
  ASSERT_EQ(explain(evidence).findings.size(), 1u);
  EXPECT_EQ(first(evidence), "crowded");
  evidence.ranks[0].times.asleep = 0.9;  // but it waits for a disk as well
  EXPECT_EQ(explain(evidence).findings.size(), 2u);
}

// On a core that somebody else uses too: the others wait for that worker, but it is not slow.
TEST(Explain, WaitingForAWorkerThatHadNoCoreIsCrowdingNotImbalance) {
  Evidence evidence = run_of({worker(0, 0.01, 0.0105), worker(1, 0.02, 0.0005)});
  evidence.ranks[1].times.delay = 100 * 0.0099;
  ASSERT_EQ(explain(evidence).findings.size(), 1u);
  EXPECT_EQ(first(evidence), "crowded");
  EXPECT_LT(explain(evidence).share("waiting"), 0.05);
  // Late by turns, because they take turns on the cores.
  evidence = run_of({worker(0, 0.01, 0.006), worker(1, 0.0101, 0.006)});
  for (RankRow& row : evidence.ranks) row.times.late = 100 * 0.0055, row.times.delay = 100 * 0.005;
  EXPECT_EQ(first(evidence), "crowded");
  EXPECT_LT(explain(evidence).share("uneven"), 0.05);
}

TEST(Explain, ACrowdDoesNotHideWhatElseIsWrong) {
  // A third of the step waits for data on cores of its own; here half of the step waits for a core, too.
  Evidence evidence = run_of({worker(0, 0.03, 0, 0.01)});
  evidence.ranks[0].times.delay = 100 * 0.018;
  const Explanation e = explain(evidence);
  ASSERT_EQ(e.findings.size(), 2u);
  EXPECT_EQ(e.findings[0].cause, Cause::kCrowded);
  EXPECT_EQ(e.findings[1].cause, Cause::kLoader);
}

// What no thread could take away is not the loader's fault: batches that are work, on cores that have no time left.
TEST(Explain, TheLoaderIsBlamedForWhatMoreLoadingCouldTakeAway) {
  Evidence evidence = run_of({worker(0, 0.015, 0, 0.005)});  // a quarter of the step
  RankTimes& times = evidence.ranks[0].times;
  times.made = 1;
  EXPECT_EQ(first(evidence), "loader") << "nothing is known of free cores";
  evidence.idle_cores = 0.02;
  EXPECT_EQ(first(evidence), "healthy");
  evidence.idle_cores = 1;
  EXPECT_EQ(first(evidence), "loader");
  evidence.ranks[0].pinned = true;  // and so are its threads
  EXPECT_EQ(first(evidence), "healthy");
  times.asleep = 0.95;  // it waits for a disk
  EXPECT_EQ(first(evidence), "loader");
  // Half of the step and nothing to be done by threads: named, with another remedy.
  evidence = run_of({worker(0, 0.01, 0, 0.01)});
  evidence.ranks[0].times.made = 1;
  evidence.idle_cores = 0;
  ASSERT_EQ(first(evidence), "loader");
  EXPECT_NE(explain(evidence).findings[0].why.find("no core is free"), std::string::npos);
}

TEST(Explain, AFewStepsAreNoGround) {
  Evidence evidence = run_of({worker(0, 0.01, 0, 0.03)});
  evidence.ranks[0].times.steps = 5;
  EXPECT_FALSE(explain(evidence).enough);
  EXPECT_TRUE(explain(evidence).findings.empty());
  EXPECT_TRUE(explain(Evidence{}).shares.empty());
}

}  // namespace
}  // namespace tandem
