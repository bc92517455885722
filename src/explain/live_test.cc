#include "explain/live.h"

#include <gtest/gtest.h>

#include "base/temp_dir.h"

namespace tandem {
namespace {

// Two workers at a hundred steps a second; the second has `slow` times the first one's work.
class SimulatedRun {
 public:
  explicit SimulatedRun(LiveWatch& watch) : watch_(watch) {}

  std::vector<std::string> go_on(double seconds, double slow) {
    std::vector<std::string> reported;
    for (double end = time_ + seconds; time_ < end; time_ += 0.5) {
      for (RankRow& row : line_.ranks) {
        const double work = row.rank == 0 ? 0.01 / slow : 0.01;
        row.times += {.steps = 50, .step = 0.5, .work = 50 * work * 0.95, .combine = 50 * (0.01 - work)};
      }
      line_.step += 50;
      line_.time += 0.5;
      if (const auto found = watch_.look(line_, time_)) reported.push_back(found->text);
    }
    return reported;
  }
  void new_plan() { ++line_.generation; }

 private:
  LiveWatch& watch_;
  double time_ = 100;
  TimesLine line_{.ranks = {{.rank = 0, .device = "cpu:0", .shards = 1}, {.rank = 1, .device = "cpu:1", .shards = 1}}};
};

TEST(Live, NamesAWaitingWorkerOnceAndNotBeforeItHasLasted) {
  const TempDir dir;
  LiveWatch watch(dir.path(), "tiny-1");
  SimulatedRun run(watch);
  EXPECT_TRUE(run.go_on(8, 2).empty());
  const auto reported = run.go_on(60, 2);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_NE(reported[0].find("worker 0 (cpu:0) waits for worker 1 (cpu:1)"), std::string::npos) << reported[0];
}

TEST(Live, AHealthyRunHearsNothing) {
  const TempDir dir;
  LiveWatch watch(dir.path(), "tiny-1");
  EXPECT_TRUE(SimulatedRun(watch).go_on(60, 1.02).empty());
}

TEST(Live, ASlowDownThatPassesOrComesAndGoesIsNotNamed) {
  const TempDir dir;
  LiveWatch watch(dir.path(), "tiny-1");
  SimulatedRun run(watch);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(run.go_on(4, 2).empty());
    EXPECT_TRUE(run.go_on(26, 1).empty());
  }
}

TEST(Live, ANewPlanBeginsANewWindow) {
  const TempDir dir;
  LiveWatch watch(dir.path(), "tiny-1");
  SimulatedRun run(watch);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(run.go_on(8, 2).empty());
    run.new_plan();
  }
}

}  // namespace
}  // namespace tandem
