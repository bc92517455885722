#include "explain/remedies.h"

#include <gtest/gtest.h>

#include <string>

#include "base/shell_word.h"

namespace tandem {
namespace {

// A worker that did 100 steps of so many seconds.
RankRow rank_row(int rank, int shards, double work, double combine = 0) {
  RankRow row{.rank = rank, .device = "cpu:" + std::to_string(rank), .shards = shards};
  row.times = {.steps = 100, .step = 100 * (work + combine), .work = 100 * work, .combine = 100 * combine};
  return row;
}

// Workers of which the last is slower: `ratio` of the others' speed.
Evidence unequal(int workers, int64_t shards, double ratio) {
  Evidence evidence{
      .run = "tiny-1", .recipe = "tiny", .dir = "runs/tiny-1", .batch = 128, .shards = shards, .cores = 8};
  const int each = static_cast<int>(shards) / workers;
  for (int rank = 0; rank < workers; ++rank) {
    const bool slow = rank == workers - 1;
    const double seconds = 0.01 * each;
    evidence.ranks.push_back(
        rank_row(rank, each, slow ? seconds / ratio : seconds, slow ? 0 : seconds / ratio - seconds));
  }
  return evidence;
}

SlowDown first_cause(const Evidence& evidence) {
  const Explanation e = explain(evidence);
  return e.findings.empty() ? SlowDown{} : e.findings[0];
}

TEST(Remedies, AWorkerIsLeftOutWhereTheOthersAreAQuarterFasterWithoutIt) {
  Evidence evidence = unequal(2, 2, 0.38);  // two shards on one take 20 ms; together 26 ms
  evidence.live = true;
  EXPECT_EQ(first_cause(evidence).cause, Cause::kImbalance);
  EXPECT_EQ(first_cause(evidence).command, "tandem leave runs/tiny-1 --rank 1");
  evidence = unequal(2, 2, 0.42);  // 24 ms: not worth it
  EXPECT_EQ(first_cause(evidence).command, "tandem train runs/tiny-1/recipe.toml --set shards=16");
  // Whole shards: two more workers take the four of the third at once, or not at all.
  EXPECT_NE(first_cause(unequal(3, 3, 0.35)).command.find("--devices cpu:2"), std::string::npos);
  EXPECT_NE(first_cause(unequal(3, 3, 0.45)).command.find("--set shards="), std::string::npos);
}

TEST(Remedies, WorkersOnCoresAreNamedByTheirNumberAndGpusByName) {
  Evidence evidence = unequal(3, 3, 0.2);
  EXPECT_EQ(first_cause(evidence).command, "tandem resume runs/tiny-1 --devices cpu:2");
  for (RankRow& row : evidence.ranks) {
    row.on_gpu = true;
    row.device = "cuda:" + std::to_string(2 * row.rank);
    row.times.gpu_wait = row.times.work;
  }
  EXPECT_EQ(first_cause(evidence).command, "tandem resume runs/tiny-1 --devices cuda:0,cuda:2");
}

TEST(Remedies, AFinishedRunIsNotResumedAndALiveOneIsStoppedFirst) {
  Evidence evidence{
      .ranks = {rank_row(0, 1, 0.01)}, .dir = "runs/tiny-1", .batch = 128, .loader_threads = 1, .cores = 8};
  evidence.ranks[0].times.load = 3;
  evidence.ranks[0].times.step = 4;
  EXPECT_EQ(first_cause(evidence).command, "tandem resume runs/tiny-1 --loader-threads 4 --set loader.prefetch=4");
  EXPECT_EQ(first_cause(evidence).remedy.find("Ctrl-C"), std::string::npos);
  evidence.prefetch = -1;  // two to a thread, however many there are
  EXPECT_EQ(first_cause(evidence).command, "tandem resume runs/tiny-1 --loader-threads 4");
  evidence.prefetch = 8;
  evidence.live = true;
  EXPECT_EQ(first_cause(evidence).command, "tandem resume runs/tiny-1 --loader-threads 4");
  EXPECT_NE(first_cause(evidence).remedy.find("Ctrl-C"), std::string::npos);
  evidence.live = false;
  evidence.done = true;
  EXPECT_EQ(first_cause(evidence).command, "tandem train runs/tiny-1/recipe.toml --loader-threads 4");
}

TEST(Remedies, ShardsAreProposedThatDivideTheBatch) {
  Evidence evidence = unequal(2, 2, 0.45);
  for (const auto& [batch, flags] : {std::pair<int64_t, std::string>{48, "--set shards=16"},
                                     {50, "--set shards=25"},
                                     {202, "--set shards=16 --batch-size 208"},
                                     {6, "--set shards=16 --batch-size 16"}}) {
    evidence.batch = batch;
    EXPECT_EQ(first_cause(evidence).command, "tandem train runs/tiny-1/recipe.toml " + flags);
  }
  evidence.batch = 96;
  evidence.accumulation = 3;
  EXPECT_EQ(first_cause(evidence).command, "tandem train runs/tiny-1/recipe.toml --set shards=16");
}

TEST(Remedies, PathsAreQuotedForTheShell) {
  EXPECT_EQ(shell_word("runs/tiny-1"), "runs/tiny-1");
  EXPECT_EQ(shell_word("my runs/it's"), "'my runs/it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  Evidence evidence = unequal(2, 2, 0.45);
  evidence.dir = "my runs/$1";
  EXPECT_EQ(first_cause(evidence).command, "tandem train 'my runs/$1/recipe.toml' --set shards=16");
  evidence.dir = "-x";
  EXPECT_EQ(first_cause(evidence).command, "tandem train ./-x/recipe.toml --set shards=16");
}

}  // namespace
}  // namespace tandem
