#include "telemetry/run_name.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_dir.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

std::string name_with(const std::filesystem::path& dir, const std::string& recipe_toml) {
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "recipe.toml") << recipe_toml;
  return run_name(dir);
}

TEST(RunName, IsTheAgentOrTheRecipeAndNeverTheId) {
  const TempDir dir;
  EXPECT_EQ(name_with(dir / "web-agent-20261117-031502-k3m9qa", "recipe = \"web-agent\"\nagent = \"requirements\"\n"),
            "requirements");
  EXPECT_EQ(name_with(dir / "a", "recipe = \"tiny\"\n"), "tiny");
  EXPECT_EQ(name_with(dir / "b", "recipe = \"web-agent\"\nagent = \"analysis,evolution\"\n"), "analysis, evolution");
  EXPECT_EQ(name_with(dir / "c", "agent = \"analysis,evolution,execution\"\n"), "analysis and 2 more");
  EXPECT_EQ(name_with(dir / "d", "agent = \"all\"\n"), "all agents");
  std::filesystem::create_directories(dir / "e");
  EXPECT_EQ(run_name(dir / "e"), "");
  update_run_json(dir / "e", {{"recipe", "tiny-rl"}});
  EXPECT_EQ(run_name(dir / "e"), "tiny-rl");
}

TEST(RunName, OfAMemberOfAnEnsembleIsTheMembers) {
  const TempDir dir;
  const auto member = dir / "set" / "agents" / "analysis-conservative";
  const std::string recipe = "recipe = \"web-agent\"\nagent = \"analysis\"\n";
  EXPECT_EQ(name_with(member, recipe), "analysis") << "a folder that only looks like a set's";
  std::ofstream(dir / "set" / "agents.json") << "{}";
  EXPECT_EQ(name_with(member, recipe), "analysis-conservative");
  EXPECT_EQ(run_name(member.string() + "/"), "analysis-conservative");
}

}  // namespace
}  // namespace tandem
