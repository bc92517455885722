// Flags through the real program: what they mean, and that a wrong one is refused in our words.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/gpu_flags.h"
#include "command/run_program.h"
#include "config/devices.h"
#include "config/recipe_list.h"

namespace tandem {
namespace {

TEST(Flags, ASingleNumberOfGpusIsHowManyAndAListIsWhich) {
  EXPECT_EQ(devices_of_gpus("4"), "cuda:0,cuda:1,cuda:2,cuda:3");
  EXPECT_EQ(devices_of_gpus("1"), "cuda:0");
  EXPECT_EQ(devices_of_gpus("0"), "cuda:0");
  EXPECT_EQ(devices_of_gpus("0,2"), "cuda:0,cuda:2");
  EXPECT_EQ(devices_of_gpus("4,"), "cuda:4");
  EXPECT_EQ(devices_of_gpus("all"), "cuda:all");
  EXPECT_EQ(devices_of_count("2"), "cuda:0,cuda:1");
  EXPECT_EQ(devices_of_count("-1"), "cuda:all");
  for (const char* text : {"", ",", ",,", "x", "-2", "1.5", "2000"}) EXPECT_THROW(devices_of_gpus(text), ConfigError);
  for (const char* text : {"", "0", "1,2", "two"}) EXPECT_THROW(devices_of_count(text), ConfigError);
}

TEST(Flags, AllGpusAreAllAndNeverTheCpuInstead) {
  Machine machine{.cuda_build = true, .cuda_devices = 3};
  EXPECT_EQ(parse_devices("cuda:all", machine).size(), 3u);
  EXPECT_EQ(parse_devices("cuda:all", machine).back().name(), "cuda:2");
  machine.cuda_devices = 0;
  EXPECT_THROW(parse_devices("cuda:all", machine), ConfigError);
  const Sandbox box;
  for (const char* flag : {"--num_gpus=-1", "--num-gpus=all", "--gpus=-1"})
    EXPECT_NE(box.run({"train", "tiny", flag, "--dry-run"}).err.find("devices \"cuda:all\""), std::string::npos)
        << flag;
}

TEST(Flags, ARefusalIsInOurWords) {
  const Sandbox box;
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"bench", "--baselines=x"}, "error: --baselines takes no value\n  why    \"x\" was given to it\n"},
      {{"train", "tiny", "--quiet=maybe"}, "error: --quiet takes no value\n"},
      {{"runs", "list", "--limit", "x"}, "error: --limit x: no number\n"},
      {{"monitor", "--interval=often"}, "error: --interval often: no number\n"},
      {{"train", "tiny", "--gpus", "0", "--devices", "cpu"}, " were both given\n"},
      {{"runs", "best", "loss", "--order", "up"}, "error: --order can't be \"up\"\n  why    it is one of "},
      {{"completion", "tcsh"}, "error: shell can't be \"tcsh\"\n  why    it is one of bash, zsh, fish\n"},
      {{"completion"}, "error: which shell?\n"},
      {{"runs", "compare"}, "error: which two runs?\n"},
      {{"runs", "compare", "last"}, "error: which two runs?\n"},
      {{"plan", "tiny", "--batch", ""}, "error: --batch: nothing is named\n"},
      {{"plan", "tiny", "--quick"}, "error: tiny has no --quick\n"}};
  for (const auto& [words, said] : cases) {
    const ProgramResult result = box.run(words);
    EXPECT_EQ(result.code, 2) << words.back();
    EXPECT_NE(result.err.find(said), std::string::npos) << words.back() << "\n" << result.err;
    for (const char* raw : {"Could not convert", "excludes", "not in {", "required", "override", "_M_range"})
      EXPECT_EQ(result.err.find(raw), std::string::npos) << result.err;
  }
}

TEST(Flags, MonitorTakesJsonAndSnapshotTogether) {
  const Sandbox box;
  const ProgramResult result = box.run({"monitor", "--json", "--snapshot"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["schema"], 1);
  EXPECT_EQ(box.run({"monitor", "--csv", "--snapshot"}).code, 2);
}

TEST(Recipes, APlannedOneIsNotOneThatIsHere) {
  const Sandbox box;
  const auto here = nlohmann::json::parse(box.run({"recipes", "--json"}).out)["recipes"];
  for (const PlannedRecipe& planned : planned_recipes()) {
    for (const auto& recipe : here)
      EXPECT_NE(recipe["name"], std::string(planned.name)) << "it came: take its line out of config/recipe_list.cc";
    const ProgramResult result = box.run({"train", std::string(planned.name)});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("is not here yet\n  why    it is planned: "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("This version has: tiny"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace tandem
