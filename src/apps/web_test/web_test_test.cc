// web-test through the real program, with a stand-in for the worker: jobs, folders, settings, signals, bad input.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "command/run_program.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kAgents = {"requirements", "generation", "execution",
                                          "observation",  "analysis",   "evolution"};

std::vector<std::string> words(std::vector<std::string> more, bool quick = true) {
  std::vector<std::string> all = {"train", "web-test", "--devices", "cpu:2", "--run-dir", "set"};
  if (quick) all.push_back("--quick");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

nlohmann::json object(const ProgramResult& result) {
  const auto parsed = nlohmann::json::parse(result.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << result.out << result.err;
  return parsed;
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& message) {
  const Sandbox box;
  const ProgramResult result = box.run(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, message);
  EXPECT_FALSE(fs::exists(box.dir() / "set")) << "nothing is made";
  EXPECT_FALSE(fs::exists(box.dir() / "runs"));
}

// Processes of a sandbox whose command line has this word.
std::vector<pid_t> processes_of(const Sandbox& box, const std::string& word = "") {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string line;
    std::getline(file, line, '\1');  // all of it; a process that just ended has none
    if (line.find(box.dir().string() + "/bin") != std::string::npos && line.find(word) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

// A program in the background, gone with the test however that ends.
class Background {
 public:
  Background(const Sandbox& box, const std::vector<std::string>& arguments) : pid_(box.start(arguments, out_)) {}
  ~Background() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) Sandbox::wait(pid_);
    close(out_);
  }
  void send(int signal) const { kill(pid_, signal); }
  int wait() { return Sandbox::wait(std::exchange(pid_, -1)).code; }

 private:
  int out_ = -1;
  pid_t pid_;
};

void wait_for(const std::function<bool()>& happened) {
  for (int i = 0; i < 600'000; ++i) {  // ten minutes and more, however busy the machine is
    if (happened()) return;
    usleep(1000);  // lint: allow(sleep) polls files and processes
  }
  ADD_FAILURE() << "it never happened";
}

TEST(WebTest, TrainsAllSixInOneRunWithAFolderEach) {
  const Sandbox box;
  const auto output = object(box.run(words({"--json"})));
  EXPECT_EQ(output["status"], "done");
  EXPECT_EQ(output["recipe"], "web-test");
  EXPECT_EQ(output["agents"].size(), 6u);
  for (const std::string& agent : kAgents) {
    EXPECT_EQ(output["agents"][agent]["digest"].get<std::string>().size(), 64u);
    EXPECT_EQ(output["agents"][agent]["step"], 4000);
    EXPECT_TRUE(fs::exists(box.dir() / "set/agents" / agent / "checkpoints"));
  }
  const auto file = nlohmann::json::parse(box.read("set/agents.json"));
  EXPECT_EQ(file["agents"]["analysis"], (nlohmann::json{{"runs", {"agents/analysis"}}, {"best", "agents/analysis"}}));
  EXPECT_NE(box.read("set/report.html").find("agents/analysis/report.html"), std::string::npos);
  EXPECT_EQ(object(box.run({"digest", "set", "--json"}))["digest"], output["digest"]);
  EXPECT_EQ(object(box.run({"report", "set", "--json"}))["file"], "set/report.html");
  const ProgramResult exported = box.run({"export", "set"});
  EXPECT_EQ(exported.code, 2);
  EXPECT_NE(exported.err.find("set/agents/requirements"), std::string::npos) << exported.err;
}

TEST(WebTest, IsOneRunInTheListAndItsTableTellsEachAgent) {
  const Sandbox box;
  const ProgramResult result = box.run({"train", "web-test", "--quick", "--devices", "cpu:2"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const std::string& agent : kAgents)
    EXPECT_NE(result.err.find("\n" + agent + " "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("all done after"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("\ndisk    checkpoints of about 373 MB"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("the last 3 are kept: up to 1.12 GB, compressed a third to a half of it\n"),
            std::string::npos)
      << result.err;
  const auto runs = object(box.run({"runs", "--json"}))["runs"];
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["recipe"], "web-test");
  EXPECT_EQ(runs[0]["status"], "done");
  EXPECT_EQ(runs[0]["step"], 6 * 4000);
}

TEST(WebTest, AnAgentsSettingsAreThoseOfARunOfItsOwn) {
  Sandbox box;
  box.env["TANDEM_NET_HEAD"] = "64";
  box.write("tandem.toml", "gamma = 0.9\n[recipes.web-test.analysis]\nn_step = 2\n");
  ASSERT_EQ(box.run(words({"--seed", "9", "--set", "analysis.steps=70", "--steps", "50"})).code, 0);
  box.write("tandem.toml", "gamma = 0.9\n");
  ASSERT_EQ(box.run({"train", "web-agent", "--quick", "--seed", "9", "--set", "agent=evolution", "--steps", "50",
                     "--run-dir", "one", "--devices", "cpu:1"})
                .code,
            0);
  const auto values = [&](const std::string& dir) {
    nlohmann::json found = object(box.run({"runs", "show", dir, "--json"}))["run"]["settings"];
    found.erase("devices");
    return found;
  };
  EXPECT_EQ(values("set/agents/evolution"), values("one"));
  const auto analysis = values("set/agents/analysis");
  EXPECT_EQ(analysis["steps"], "70");
  EXPECT_EQ(analysis["schedule.total_steps"], "70");
  EXPECT_EQ(analysis["n_step"], "2");
  EXPECT_EQ(analysis["net.head"], "64");
  EXPECT_NE(box.read("set/agents/analysis/recipe.toml").find("steps = 70"), std::string::npos);
  EXPECT_NE(box.read("set/recipe.toml").find("[analysis]"), std::string::npos);
}

TEST(WebTest, AnEnsembleHasThreeMembersOfEachAgentAndNamesTheBest) {
  const Sandbox box;
  const auto output = object(box.run(words({"--strategy", "ensemble", "--agents", "analysis", "--json"})));
  const auto& members = output["agents"]["analysis"]["members"];
  ASSERT_EQ(members.size(), 3u) << output;
  const auto setting = [&](const std::string& member, const std::string& key) {
    return object(box.run({"runs", "show", "set/agents/" + member, "--json"}))["run"]["settings"][key];
  };
  EXPECT_EQ(setting("analysis-conservative", "epsilon.steps"), "750");
  EXPECT_EQ(setting("analysis-balanced", "epsilon.steps"), "1500");
  EXPECT_EQ(setting("analysis-aggressive", "epsilon.steps"), "3000");
  EXPECT_EQ(setting("analysis-balanced", "seed"), "1") << "as the agent is trained alone";
  EXPECT_EQ(nlohmann::json::parse(box.read("set/agents.json"))["agents"]["analysis"]["runs"].size(), 3u);
}

TEST(WebTest, AgentsSideBySideAreOneJobAndARowEach) {
  const Sandbox box;
  const auto output = object(box.run(words({"--together", "on", "--json", "--set", "analysis.n_step=2"})));
  EXPECT_EQ(output["status"], "done");
  ASSERT_EQ(output["agents"].size(), 6u);
  EXPECT_EQ(output["step"], 6 * 4000);
  EXPECT_EQ(output["agents"]["evolution"]["run"], "requirements+4");
  EXPECT_EQ(output["agents"]["analysis"]["run"], "analysis") << "its own settings, its own run";
  EXPECT_NE(box.read("set/agents/requirements+4/recipe.toml")
                .find("agent = \"requirements,generation,execution,observation,evolution\""),
            std::string::npos);
  const auto file = nlohmann::json::parse(box.read("set/agents.json"));
  EXPECT_EQ(file["agents"]["evolution"]["best"], "agents/requirements+4");
  EXPECT_EQ(file["jobs"].size(), 6u);
  EXPECT_NE(box.read("set/report.html").find(">evolution</a>"), std::string::npos);
  // Resumed, it is the same run.
  const auto again =
      object(box.run({"resume", "set", "--steps", "4100", "--together", "off", "--devices", "cpu:1", "--json"}));
  EXPECT_EQ(again["agents"]["evolution"]["run"], "requirements+4");
  EXPECT_EQ(again["step"], 6 * 4100);
}

TEST(WebTest, ADryRunShowsTheAssignmentAndMakesNothing) {
  const Sandbox box;
  const auto output = object(box.run({"train", "web-test", "--devices", "cpu:3@1,0.5,0.5", "--dry-run", "--json",
                                      "--assign", "analysis=2", "--assignment", "specialized"}));
  EXPECT_EQ(output["jobs"].size(), 6u);
  EXPECT_EQ(output["devices"][1]["speed"], 0.5);
  EXPECT_GE(output["forecast_seconds"].get<double>(), output["ideal_seconds"].get<double>());
  for (const auto& part : output["plan"])
    if (part["job"] == "analysis" && part["begin"] == 0.0) {
      EXPECT_EQ(part["device"], "cpu:2");
    }
  EXPECT_FALSE(fs::exists(box.dir() / "runs"));
  EXPECT_NE(box.run({"train", "web-test", "--dry-run"}).err.find("forecast"), std::string::npos);
}

TEST(WebTest, BadInputIsExplained) {
  expect_refused(words({"--agents", "analyst"}),
                 "error: there is no agent \"analyst\"\n"
                 "  why    the agents are: requirements, generation, execution, observation, analysis, evolution\n"
                 "  do     did you mean `analysis`?\n");
  expect_refused(words({"--agents", "analysis,analysis"}),
                 "error: --agents names analysis twice\n"
                 "  why    an agent is trained once\n"
                 "  do     take one of the two out\n");
  expect_refused(words({"--strategy", "agent"}),
                 "error: --strategy: `strategy` is \"agent\"; it must be one of agents, ddp, ensemble\n"
                 "  why    `strategy` is: agents: one per device; ddp: each in turn on all devices; ensemble: three "
                 "members of each\n"
                 "  do     did you mean `agents`?\n");
  expect_refused(words({"--assign", "analysis=2"}),
                 "error: --assign analysis=2: there is no device 2\n"
                 "  why    this run has 2 devices, numbered 0 to 1\n"
                 "  do     name one of them, or give more with --devices\n");
  expect_refused(words({"--assign", "analysis=0,analysis=1"}),
                 "error: --assign names analysis twice\n"
                 "  why    an agent is trained once\n"
                 "  do     take one of the two out\n");
  expect_refused(words({"--assign", "analysis=0", "--agents", "evolution"}),
                 "error: --assign names analysis, which --agents leaves out\n"
                 "  why    trained are: evolution\n"
                 "  do     take it out of --assign, or add it\n");
  expect_refused(words({"--set", "analysis.stesp=7"}),
                 "error: --set: analysis: unknown key `stesp`\n"
                 "  why    a misspelt key would be ignored in silence, so unknown ones are errors\n"
                 "  do     did you mean `steps`?\n");
  expect_refused(words({"--set", "analysis.devices=cpu:1"}),
                 "error: --set: `devices` can't be set for analysis alone\n"
                 "  why    it belongs to the run as a whole\n"
                 "  do     set `devices` without `analysis.`\n");
  expect_refused(words({"--set", "analysis.capacity=3"}),
                 "error: a buffer of 3 leaves 0 steps for each of 2 x 16 environments\n"
                 "  why    a transition of 3 steps needs 5\n"
                 "  do     set capacity to 160 or more\n");
  expect_refused(words({"--set", "shards=devices"}),
                 "error: web-test needs a number of shards\n"
                 "  why    its agents move between devices while they are trained\n"
                 "  do     leave shards as it is, or give a number\n");
  expect_refused(words({"--episodes", "5"}),
                 "error: this recipe has no episodes\n"
                 "  why    its stop rule counts other things\n"
                 "  do     use --steps or --max-time\n");
}

TEST(WebTest, AFinishedAgentWhoseCheckpointIsDamagedIsNotTakenForDone) {
  const Sandbox box;
  ASSERT_EQ(object(box.run(words({"--agents", "analysis,evolution", "--json"})))["status"], "done");
  for (const auto& entry : fs::directory_iterator(box.dir() / "set/agents/analysis/checkpoints"))
    if (entry.is_directory()) fs::resize_file(entry.path() / "model.safetensors", 8);
  const ProgramResult again = box.run({"resume", "set", "--devices", "cpu:1"});
  EXPECT_NE(again.err.find("analysis: its newest checkpoint is damaged"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("evolution: its newest"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("is whole"), std::string::npos) << "there is none before it\n" << again.err;
  EXPECT_NE(again.code, 0);
}

TEST(WebTest, ASignalStopsAllAgentsAndAResumeGoesOn) {
  Sandbox box;
  box.env["TANDEM_STAND_IN"] = "endless";
  Background set(box, words({"--agents", "analysis,evolution,execution"}));
  wait_for([&] {
    return box.read("set/agents/analysis/logs/rank-0.log").find("at work") != std::string::npos ||
           box.read("set/agents/execution/logs/rank-0.log").find("at work") != std::string::npos;
  });
  EXPECT_EQ(object(box.run({"runs", "show", "set", "--json"}))["run"]["status"], "running");
  const ProgramResult second = box.run({"resume", "set"});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("is in use"), std::string::npos) << second.err;
  set.send(SIGTERM);
  EXPECT_EQ(set.wait(), 143);
  EXPECT_TRUE(processes_of(box).empty());
  EXPECT_EQ(object(box.run({"runs", "show", "set", "--json"}))["run"]["status"], "stopped");
  box.env.erase("TANDEM_STAND_IN");
  EXPECT_EQ(object(box.run({"resume", "set", "--devices", "cpu:1", "--json"}))["status"], "done");
}

TEST(WebTest, AgentsDoNotOutliveASetThatWasKilled) {
  Sandbox box;
  box.env["TANDEM_STAND_IN"] = "endless";
  Background set(box, words({}));
  wait_for([&] { return box.read("set/agents/observation/logs/rank-0.log").find("at work") != std::string::npos; });
  set.send(SIGKILL);
  EXPECT_EQ(set.wait(), -SIGKILL);
  wait_for([&] { return processes_of(box).empty(); });
  EXPECT_EQ(object(box.run({"runs", "show", "set", "--json"}))["run"]["status"], "died");
}

TEST(WebTest, AnAgentThatDiesIsGoneOnWithAFewTimesAndDoesNotStopTheOthers) {
  Sandbox box;
  box.env["TANDEM_STAND_IN"] = "endless";
  const std::string kAnalysis = std::string(1, '\0') + "set/agents/analysis";
  Background set(box, words({"--agents", "analysis", "--json"}));
  for (int death = 0; death < 4; ++death) {
    std::vector<pid_t> launchers;
    wait_for([&] {
      launchers = processes_of(box, "resume" + kAnalysis);
      return launchers.size() == 1 && !processes_of(box, "work" + kAnalysis).empty();
    });
    ASSERT_EQ(launchers.size(), 1u);
    kill(launchers[0], SIGKILL);
    wait_for([&] { return processes_of(box, "resume" + kAnalysis) != launchers; });
  }
  EXPECT_EQ(set.wait(), 1);
  const std::string said = box.read(".err");
  EXPECT_NE(said.find("analysis: its process was killed (SIGKILL); it begins anew (3 of 3 times)"), std::string::npos)
      << said;
  EXPECT_NE(said.find("analysis has failed"), std::string::npos) << said;
  EXPECT_EQ(object(box.run({"runs", "show", "set", "--json"}))["run"]["status"], "failed");
}

}  // namespace
}  // namespace tandem
