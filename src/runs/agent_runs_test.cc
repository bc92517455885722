#include "runs/agent_runs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/errors.h"
#include "base/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(AgentRuns, AFolderWithoutAListIsARunOfOneAgent) {
  const TempDir dir;
  put(dir.path() / "run/recipe.toml", "recipe = \"web-agent\"\nagent = \"analysis\"   # --set\n");
  const AgentRuns runs = agent_runs_of(dir.path() / "run");
  ASSERT_EQ(runs.names(), std::vector<std::string>{"analysis"});
  EXPECT_EQ(runs.agents[0].best, dir.path() / "run");
  EXPECT_FALSE(runs.agents[0].replaced());
  EXPECT_EQ(&find_agent(runs, ""), &runs.agents[0]);
}

TEST(AgentRuns, SeveralThatLearnSideBySideShareARun) {
  const TempDir dir;
  put(dir.path() / "recipe.toml", "recipe = \"web-agent\"\nagent = \"analysis,evolution\"\n");
  EXPECT_EQ(agent_runs_of(dir.path()).names(), (std::vector<std::string>{"analysis", "evolution"}));
  put(dir.path() / "recipe.toml", "recipe = \"web-agent\"\nagent = \"all\"\n");
  const AgentRuns all = agent_runs_of(dir.path());
  EXPECT_EQ(all.agents.size(), 6u);
  EXPECT_EQ(find_agent(all, "evolution").best, dir.path());
}

TEST(AgentRuns, AnAgentThatIsNotThereIsAnsweredWithThoseThatAre) {
  const TempDir dir;
  put(dir.path() / "agents.json",
      R"({"schema":1,"agents":{"analysis":{"runs":["agents/analysis"]},"evolution":{"runs":["agents/evolution"]}}})");
  const AgentRuns runs = agent_runs_of(dir.path());
  for (const char* name : {"", "analyst"}) {
    try {
      find_agent(runs, name);
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_NE((error.why() + error.todo()).find("evolution"), std::string::npos);
    }
  }
}

TEST(AgentRuns, ALaterRunStandsForTheBestMemberOnceItIsCurrent) {
  const TempDir dir;
  const fs::path run = dir.path() / "web-test-1";
  put(run / "agents.json",
      R"({"schema":1,"strategy":"ensemble","agents":{"analysis":{"runs":["agents/a","agents/b"],"best":"agents/b"},
          "evolution":{"runs":["agents/e"],"best":"agents/e"}}})");
  for (const char* next : {"next", "after"}) {
    fs::create_directories(dir.path() / next);
    make_current(run, "analysis", dir.path() / next);
    const AgentRuns runs = agent_runs_of(run);
    const AgentRun& agent = find_agent(runs, "analysis");
    EXPECT_TRUE(agent.replaced());
    EXPECT_EQ(agent.best, dir.path() / next);
    EXPECT_EQ(agent.first, run / "agents/b");
    EXPECT_EQ(agent.runs, (std::vector<fs::path>{run / "agents/a", dir.path() / next}));
    EXPECT_FALSE(find_agent(runs, "evolution").replaced());
  }
  fs::rename(dir.path() / "web-test-1", dir.path() / "moved");  // and all of them together
  EXPECT_EQ(find_agent(agent_runs_of(dir.path() / "moved"), "analysis").best, dir.path() / "after");
}

TEST(AgentRuns, ALaterRunWhoseNameIsNoUtf8IsFoundAgain) {
  const TempDir dir;
  put(dir.path() / "run/recipe.toml", "recipe = \"web-agent\"\nagent = \"analysis\"\n");
  const fs::path next = dir.path() / "next-\xff\xfe";
  fs::create_directories(next);
  make_current(dir.path() / "run", "analysis", next);
  const AgentRuns runs = agent_runs_of(dir.path() / "run");
  EXPECT_EQ(runs.agents[0].best, next);
}

TEST(AgentRuns, DamagedFilesAreRefused) {
  const TempDir dir;
  for (const char* text : {"", "{", "[]", "{\"agents\":7}", "{\"agents\":{}}", "{\"agents\":{\"a\":{}}}",
                           "{\"agents\":{\"a\":{\"runs\":[7]}}}", "{\"agents\":{\"a\":{\"runs\":[]}}}",
                           "{\"agents\":{\"a\":{\"runs\":[\"x\"],\"best\":\"y\"}}}"}) {
    put(dir.path() / "agents.json", text);
    EXPECT_THROW(agent_runs_of(dir.path()), CheckpointError) << text;
  }
  put(dir.path() / "agents.json", "{\"agents\":{\"a\":{\"runs\":[\"x\"]}}}");
  for (const char* text : {"{", "{\"agents\":{\"a\":{}}}", "{\"agents\":{\"a\":{\"run\":\"gone\"}}}",
                           "{\"agents\":{\"a\":{\"run\":\"x\",\"run_bytes\":[0]}}}",
                           "{\"agents\":{\"a\":{\"run\":\"x\",\"run_bytes\":[\"x\"]}}}"}) {
    put(dir.path() / "current.json", text);
    EXPECT_THROW(agent_runs_of(dir.path()), CheckpointError) << text;
  }
  EXPECT_THROW(agent_runs_of(dir.path() / "nothing"), ConfigError);
}

}  // namespace
}  // namespace tandem
