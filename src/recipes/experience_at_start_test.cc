#include "recipes/experience_at_start.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/temp_dir.h"
#include "command/command.h"
#include "config/resolved_recipe.h"
#include "recipes/shipped.h"
#include "rl/dqn/dqn_settings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Of a program of a user's own: states of two numbers, one agent without a name.
struct OwnSettings : DqnSettings {
  std::optional<HistoryShape> history_shape() const override { return HistoryShape{2, 3, {}}; }
};

ResolvedRecipe own_recipe() {
  ResolvedRecipe recipe{"own", std::make_unique<OwnSettings>(), nullptr};
  recipe.resolver = std::make_unique<Resolver>(*recipe.settings);
  return recipe;
}

TEST(ExperienceAtStart, EveryShippedRecipeOfTheDqnTakesIt) {
  for (const RecipeInfo& info : shipped_recipes()) {
    const bool learns_so = dynamic_cast<DqnSettings*>(info.settings().get()) != nullptr;
    EXPECT_EQ(bool(info.before_train), learns_so) << info.name;
    EXPECT_EQ(bool(info.before_resume), learns_so) << info.name;
  }
}

TEST(ExperienceAtStart, AnOwnRecipeGetsAbsolutePathsAndTheDigest) {
  const TempDir dir;
  {
    std::ofstream file(dir / "new.jsonl");
    for (int i = 0; i < 100; ++i)
      file << "{\"state\":[1," << i << "],\"action\":1,\"reward\":0.5,\"next_state\":[2," << i << "],\"done\":true}\n";
  }
  RecipeInfo info;
  begin_with_experience(info);
  ResolvedRecipe recipe = own_recipe();
  auto& settings = dynamic_cast<DqnSettings&>(*recipe.settings);
  settings.experience.files = fs::relative(dir / "new.jsonl").string();
  const Arguments arguments;
  const CliContext context;
  const Output output(false, true, false, true);
  info.before_train({arguments, context, output}, recipe);
  EXPECT_EQ(fs::path(settings.experience.files), fs::absolute(dir / "new.jsonl").lexically_normal());
  EXPECT_EQ(settings.experience.digest.size(), 64u);
}

TEST(ExperienceAtStart, SettingsThatDecideTheWeightsAreComparedAndOlderCheckpointsWithoutThemGoOn) {
  for (const RecipeInfo& info : shipped_recipes()) {
    const std::unique_ptr<RecipeSettings> settings = info.settings();
    if (!dynamic_cast<DqnSettings*>(settings.get())) continue;
    const Resolver resolver(*settings);
    const nlohmann::json now = resolver.result_values();
    for (const char* key : {"experience.split", "experience.state_size", "experience.actions"}) {
      if (info.name != "dqn" && std::string(key) != "experience.split") continue;
      nlohmann::json then = now;
      ASSERT_TRUE(now.contains(key)) << info.name << " " << key;
      then.erase(key);
      EXPECT_NO_THROW(check_compatible(then, now, "an older run")) << key;
      then[key] = "another";
      EXPECT_THROW(check_compatible(then, now, "a run"), ConfigError) << key;
    }
  }
}

TEST(ExperienceAtStart, AMovedRunFindsItsFirstWeights) {
  const TempDir dir;
  RecipeInfo info;
  begin_with_experience(info);
  ResolvedRecipe recipe = own_recipe();
  auto& settings = dynamic_cast<DqnSettings&>(*recipe.settings);
  settings.from = "/where/it/was/from.safetensors";
  info.before_resume(recipe, dir.path());
  EXPECT_EQ(settings.from, "/where/it/was/from.safetensors") << "there is no such file in the folder";
  std::ofstream(dir / kFirstWeights) << "weights";
  info.before_resume(recipe, dir.path());
  EXPECT_EQ(settings.from, (dir / kFirstWeights).string());
}

}  // namespace
}  // namespace tandem
