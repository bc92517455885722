#include "jobs/agents_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"
#include "jobs/set_report.h"

namespace tandem {
namespace {

struct Set {
  std::vector<SetJob> jobs;
  std::vector<JobStatus> status;
  void add(const std::string& name, const std::string& agent, double score, bool done = true) {
    jobs.push_back({.name = name, .agent = agent, .steps = 100});
    JobStatus one;
    one.state = done ? JobStatus::State::kDone : JobStatus::State::kFailed;
    one.step = 100;
    one.score = score;
    one.digest = std::string(64, 'a');
    status.push_back(one);
  }
};

TEST(AgentsFile, TheBestMemberIsTheOneThatIsDoneWithTheHighestScore) {
  Set set;
  set.add("analysis-conservative", "analysis", .6);
  set.add("analysis-aggressive", "analysis", .9, false);
  set.add("analysis-balanced", "analysis", .7);
  set.add("evolution-balanced", "evolution", kAbsent);
  EXPECT_EQ(best_job(set.jobs, set.status, "analysis"), 2u);
  EXPECT_EQ(best_job(set.jobs, set.status, "evolution"), 3u);
  EXPECT_EQ(best_job(set.jobs, set.status, "execution"), set.jobs.size());
}

TEST(AgentsFile, IsReadBackInTheOrderOfTheJobs) {
  const TempDir dir;
  Set set;
  set.add("evolution", "evolution", .5);
  set.add("analysis", "analysis", .6);
  write_agents_file(dir.path(), {.strategy = "agents", .assignment = "balanced", .devices = {"cpu:0"}, .seconds = 3},
                    set.jobs, set.status, {{0, 1, 0, 2}});
  const auto runs = runs_of_set(dir.path());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].agent, "evolution");
  EXPECT_EQ(runs[0].dir, dir / "agents/evolution");
  EXPECT_TRUE(runs[1].best);
  const auto file = read_agents_file(dir.path());
  EXPECT_EQ(file->at("agents").at("analysis").at("best"), "agents/analysis");
  EXPECT_EQ(file->at("schema"), 1);
}

TEST(AgentsFile, AStartWithFewerAgentsForgetsNoneOfTheOthers) {
  const TempDir dir;
  Set all, few;
  all.add("evolution", "evolution", .5);
  all.add("analysis", "analysis", .6);
  few.add("analysis", "analysis", .9);
  const SetFacts facts{.strategy = "agents", .assignment = "balanced"};
  write_agents_file(dir.path(), facts, all.jobs, all.status, {});
  for (int i = 0; i < 2; ++i) write_agents_file(dir.path(), facts, few.jobs, few.status, {});
  const auto runs = runs_of_set(dir.path());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "analysis");
  EXPECT_EQ(runs[1].name, "evolution");
}

TEST(AgentsFile, AFolderWithoutOneOrWithADamagedOneIsNoSet) {
  const TempDir dir;
  EXPECT_TRUE(runs_of_set(dir.path()).empty());
  for (const char* text : {"", "{", "[]", "{\"agents\":3}", "{\"agents\":{\"a\":{}},\"jobs\":[{\"agent\":1}]}"}) {
    std::ofstream(dir / kAgentsFile) << text;
    EXPECT_TRUE(runs_of_set(dir.path()).empty()) << text;
    EXPECT_NE(make_set_report(dir.path()).find("</html>"), std::string::npos) << text;
  }
}

TEST(SetDigest, DependsOnEveryDigestAndNotOnTheOrder) {
  EXPECT_EQ(set_digest({{"a", "1"}, {"b", "2"}}), set_digest({{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(set_digest({{"a", "1"}, {"b", "2"}}), set_digest({{"a", "2"}, {"b", "1"}}));
  EXPECT_EQ(set_digest({{"a", "1"}, {"b", ""}}), "") << "not all of them are there yet";
  EXPECT_EQ(set_digest({}), "");
}

TEST(SetReport, NamesCannotChangeThePage) {
  const TempDir dir;
  Set set;
  set.add("<script>alert(1)</script>", "analysis", .5);
  write_agents_file(dir.path(), {.strategy = "<b>", .assignment = "x", .devices = {"<i>"}}, set.jobs, set.status,
                    {{0, 0, 0, 5}});
  const std::string page = make_set_report(dir.path());
  for (const char* tag : {"<script", "<b>", "<i>"}) EXPECT_EQ(page.find(tag), std::string::npos) << tag;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(AgentsFile, AgentsSideBySideHaveARowEachAndTheSameRun) {
  const TempDir dir;
  const std::vector<SetJob> jobs = {{.name = "execution", .agent = "execution", .dir = dir / "agents/execution"},
                                    {.name = "analysis+1",
                                     .dir = dir / "agents/analysis+1",
                                     .steps = 9,
                                     .members = {{"analysis", "analysis", .6}, {"evolution", "evolution", .5}}}};
  std::vector<JobStatus> status(2);
  status[1].digest = "of both";
  StepRecord record;
  record.metrics = {{"analysis.score", .25}, {"evolution.score", .5}, {"evolution.mean_q", 3}};
  take_record(record, status[1]);
  const SetRows rows = rows_of(jobs, status);
  ASSERT_EQ(rows.jobs.size(), 3u);
  EXPECT_EQ(rows.first, (std::vector<int>{0, 1}));
  EXPECT_EQ(rows.jobs[2].name, "evolution");
  EXPECT_EQ(rows.jobs[2].steps, 9);
  EXPECT_EQ(rows.jobs[2].rule_score, .5);
  EXPECT_EQ(rows.status[1].score, .25);
  EXPECT_EQ(rows.status[2].score, .5);
  EXPECT_EQ(rows.status[2].digest, "") << "not that of both";
  write_agents_file(dir.path(), {}, rows.jobs, rows.status, {});
  const auto runs = runs_of_set(dir.path());
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[2].name, "evolution");
  EXPECT_EQ(runs[2].dir, dir.path() / "agents/analysis+1");
  EXPECT_TRUE(runs[2].best);
}

}  // namespace
}  // namespace tandem
