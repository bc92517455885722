#include "explain/times_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"
#include "explain/read_run.h"

namespace tandem {
namespace {

TimesLine line_of(int64_t step, double work, uint64_t generation = 1) {
  TimesLine line{.time = 1e9 + static_cast<double>(step), .step = step, .generation = generation};
  line.ranks.push_back(
      {.rank = 0, .device = "cpu:0", .shards = 3, .times = {.steps = double(step), .step = work, .work = work}});
  return line;
}

size_t lines_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

TEST(TimesLog, ALineReadsBackAsItWasWritten) {
  TimesLine line = line_of(7, 0.25, 3);
  line.ranks[0].gpu = 2;
  line.ranks[0].on_gpu = line.ranks[0].pinned = true;
  line.ranks[0].times.delay = 0.125;
  line.ranks[0].times.made = 2;
  line.ranks[0].times.asleep = 1.5;
  line.ranks[0].times.operation = 2e-6;
  line.cores = 2;
  line.idle = 17.25;
  line.others = {{.pid = 4711, .name = "cc1plus", .cores = 1.5}};
  const auto read = line_from(to_json(line).dump());
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(line));
  EXPECT_EQ(read->ranks[0].times.asleep, 1.5);
  EXPECT_EQ(read->others.at(0).name, "cc1plus");
  for (const char* bad :
       {"", "{", "[1]", "{\"ranks\": 5}", "{\"ranks\": [{\"times\": \"x\", \"gpu\": \"y\"}], \"t\": []}",
        "{\"ranks\": [], \"idle\": \"x\", \"cores\": \"y\", \"others\": [1, {\"pid\": \"z\"}]}"})
    if (const auto other = line_from(bad)) {
      EXPECT_LE(other->ranks.size(), 1u);
    }
}

// Lines of version 0.2: without what was added since.
TEST(TimesLog, ALineOfAnOlderVersionIsReadAsFarAsItGoes) {
  const auto read = line_from(R"({"t":1,"step":9,"ranks":[{"rank":0,"device":"cpu:0","shards":1,)"
                              R"("times":[9,1,0.5,0.25,0,0,0,0,0,100,1,2e-6]}]})");
  ASSERT_TRUE(read);
  EXPECT_DOUBLE_EQ(read->ranks[0].times.operation, 2e-6);
  EXPECT_EQ(read->ranks[0].times.delay, 0);
  EXPECT_FALSE(read->idle);
}

TEST(TimesLog, AReplacedWorkersTimeIsAddedToItsPredecessors) {
  const TempDir dir;
  TimesLog log(dir.path() / "ranks.jsonl");
  EXPECT_DOUBLE_EQ(log.add_up(line_of(10, 1)).ranks[0].times.work, 1);
  EXPECT_DOUBLE_EQ(log.add_up(line_of(20, 2)).ranks[0].times.work, 2);
  EXPECT_DOUBLE_EQ(log.add_up(line_of(3, 0.5)).ranks[0].times.work, 2.5);
  EXPECT_DOUBLE_EQ(log.add_up(line_of(6, 1)).ranks[0].times.steps, 26);
}

TEST(TimesLog, IsThinnedAndTellsTheSame) {
  const TempDir dir;
  const auto path = dir.path() / "ranks.jsonl";
  TimesLog log(path, 40);
  for (int i = 1; i <= 500; ++i) log.write(line_of(i, i * 0.01), i);
  EXPECT_LE(lines_in(path), 40u);
  const Evidence evidence = read_evidence(dir.path(), "tiny-1");
  ASSERT_EQ(evidence.ranks.size(), 1u);
  EXPECT_NEAR(evidence.ranks[0].times.work / evidence.ranks[0].times.steps, 0.01, 1e-6);
}

TEST(TimesLog, ARunOfManyWorkersDoesNotFillTheDisk) {
  const TempDir dir;
  const auto path = dir.path() / "ranks.jsonl";
  TimesLog log(path, 1000, 20'000);
  for (int i = 1; i <= 300; ++i) {
    TimesLine line = line_of(i, i * 0.01);
    line.ranks.resize(10, line.ranks[0]);
    log.write(line, i);
    ASSERT_LE(std::filesystem::file_size(path), 20'000u);
  }
  EXPECT_GT(lines_in(path), 2u);
  EXPECT_NEAR(read_evidence(dir.path(), "tiny-1").ranks[0].times.steps, 290, 60);
}

TEST(TimesLog, OnlyTheNewestPlanOfTheNewestStartIsLookedAt) {
  const TempDir dir;
  const auto path = dir.path() / "ranks.jsonl";
  {
    TimesLog log(path);
    for (int i = 1; i <= 100; ++i) log.write(line_of(i, i * 1.0, 4), i);
  }
  TimesLog log(path);  // a resume
  for (int i = 1; i <= 50; ++i) log.write(line_of(100 + i, i * 0.1, 1), i);
  for (int i = 51; i <= 90; ++i) log.write(line_of(100 + i, 5 + (i - 50) * 0.01, 2), i);
  const Evidence evidence = read_evidence(dir.path(), "tiny-1");
  ASSERT_EQ(evidence.ranks.size(), 1u);
  EXPECT_NEAR(evidence.ranks[0].times.work / evidence.ranks[0].times.steps, 0.01, 1e-6);
}

}  // namespace
}  // namespace tandem
