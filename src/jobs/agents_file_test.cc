#include "jobs/agents_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/temp_dir.h"
#include "jobs/set_report.h"
#include "telemetry/run_summary.h"

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
  write_agents_file(dir.path(), {.strategy = "<b>bold", .assignment = "x", .devices = {"<i>slanted"}}, set.jobs,
                    set.status, {{0, 0, 0, 5}});
  const std::string page = make_set_report(dir.path());
  for (const char* tag : {"<script>alert", "<b>bold", "<i>slanted"})
    EXPECT_EQ(page.find(tag), std::string::npos) << tag;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

nlohmann::json data_of(const std::string& page) {
  const size_t begin = page.find('{', page.find("id=\"data\""));
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(SetReport, HasTilesAgentsLinksCurvesSettingsEventsAndTheEvaluation) {
  const TempDir dir;
  Set set;
  set.add("analysis", "analysis", .5);
  set.add("evolution", "evolution", .7);
  const auto run = dir / "agents" / "analysis";
  std::filesystem::create_directories(run);
  std::ofstream(run / "report.html") << "x";
  std::ofstream(run / "metrics.jsonl")
      << R"({"step":1,"loss":0.5,"metrics":{"average_return":3,"score":0.25,"epsilon":1}})"
      << "\n";
  std::ofstream(run / "events.jsonl") << R"({"t":1,"kind":"warning","step":1,"text":"hot"})"
                                      << "\n";
  std::ofstream(dir / "recipe.toml") << "recipe = \"web-test\"\nstrategy = \"agents\"  # --strategy\n";
  std::ofstream(dir / "evaluation.json")
      << R"({"episodes":50,"seed":1,"agents":{"analysis":{"score":0.5,"low":0.4,"high":0.6,"rule":0.45}}})";
  update_run_json(dir.path(), {{"id", "web-test-20261117-031502-k3m9qa"}, {"recipe", "web-test"}, {"status", "done"}});
  write_agents_file(dir.path(), {.strategy = "agents", .assignment = "balanced", .devices = {"cpu:0"}, .seconds = 12},
                    set.jobs, set.status, {{0, 1, 0, 5}});
  const std::string page = make_set_report(dir.path());
  EXPECT_NE(page.find("<title>web-test: tandem report</title>"), std::string::npos);
  EXPECT_NE(page.find("data-theme"), std::string::npos) << "the style of the run's report";
  const auto data = data_of(page);
  EXPECT_EQ(data["tiles"][0], (nlohmann::json{"agents", "2", "done"}));
  EXPECT_EQ(data["agents"][0]["link"], "agents/analysis/report.html");
  EXPECT_EQ(data["agents"][1]["link"], "") << "it has no page yet";
  EXPECT_EQ(data["course"]["parts"][0], (nlohmann::json{0, 1, 0.0, 5.0}));
  std::set<std::string> curves;
  for (const auto& series : data["series"]) curves.insert(series["name"]);
  EXPECT_EQ(curves, (std::set<std::string>{"analysis|average_return", "analysis|loss", "analysis|score"}));
  EXPECT_EQ(data["events"][0]["text"], "analysis: hot");
  EXPECT_EQ(data["settings"][1], (nlohmann::json{"strategy", "agents", "--strategy"}));
  EXPECT_EQ(data["evaluation"][0]["score"], 0.5);
  EXPECT_TRUE(data["links"].empty());
  std::ofstream(dir / "evaluation.html") << "x";
  EXPECT_EQ(data_of(make_set_report(dir.path()))["links"][0][1], "evaluation.html");
  const auto judged = data_of(make_evaluation_page(dir.path()));
  EXPECT_EQ(judged["run"]["title"], "web-test: evaluation");
  for (const auto& tile : judged["tiles"]) EXPECT_NE(tile[0], "steps") << "it has none of its own";
  EXPECT_EQ(judged["tiles"][0][1], "1");
}

TEST(SetReport, AnAgentHasItsPlaceAndSoItsColourInTheEvaluationToo) {
  const TempDir dir;
  Set set;
  set.add("requirements", "requirements", .5);
  set.add("analysis", "analysis", .7);
  write_agents_file(dir.path(), {.strategy = "agents", .assignment = "balanced", .devices = {"cpu:0", "cpu:1"}},
                    set.jobs, set.status, {});
  std::ofstream(dir / "evaluation.json")
      << R"({"agents":{"analysis":{"score":0.7},"older":{"score":0.2},"requirements":{"score":0.5}}})";
  for (const auto& data : {data_of(make_set_report(dir.path())), data_of(make_evaluation_page(dir.path()))}) {
    ASSERT_EQ(data["evaluation"].size(), 3U);
    EXPECT_EQ(data["evaluation"][0]["name"], "requirements") << "the user's order, not the alphabet's";
    EXPECT_EQ(data["evaluation"][0]["place"], 0);
    EXPECT_EQ(data["evaluation"][1]["place"], 1);
    EXPECT_EQ(data["evaluation"][2]["name"], "older") << "that the set has no more";
  }
  EXPECT_EQ(data_of(make_set_report(dir.path()))["tiles"][5], (nlohmann::json{"devices", "2", "strategy agents"}));
}

TEST(SetReport, AnEventThatNamesItsAgentIsNotPrefixedByIt) {
  const TempDir dir;
  Set set;
  set.add("analysis", "analysis", .5);
  std::filesystem::create_directories(dir / "agents" / "analysis");
  std::ofstream(dir / "agents" / "analysis" / "events.jsonl")
      << R"({"t":1,"kind":"finish","step":9,"text":"analysis done at step 9"})"
      << "\n";
  write_agents_file(dir.path(), {.strategy = "agents", .assignment = "x", .devices = {"cpu:0"}}, set.jobs, set.status,
                    {});
  EXPECT_EQ(data_of(make_set_report(dir.path()))["events"][0]["text"], "analysis done at step 9");
}

TEST(SetReport, ALinkNeverLeavesTheFolder) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "set");
  std::ofstream(dir / "report.html") << "x";
  for (const char* run : {"..", "../../etc", "/etc", "javascript:alert(1)//"}) {
    std::ofstream(dir / "set" / kAgentsFile) << nlohmann::json{
        {"agents", nlohmann::json::object()}, {"jobs", {{{"name", "a"}, {"agent", "a"}, {"run", run}}}}};
    EXPECT_EQ(data_of(make_set_report(dir / "set"))["agents"][0]["link"], "") << run;
  }
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
