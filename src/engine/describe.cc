#include "engine/describe.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/last_step.h"
#include "engine/run_recipe.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "launch/usage_book.h"

namespace tandem {

int describe(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes) {
  const RunRecipe recipe = recipe_of_run_folder(run_dir, recipes);
  RecipeSettings& settings = *recipe.settings;
  TrainLoop loop(settings, recipe.make(), ShardRange{0, 0},
                 std::make_unique<LocalCombine>(static_cast<int>(settings.shards),
                                                std::vector<ShardRange>{{0, static_cast<int>(settings.shards)}}));
  schedule_in_steps(loop.recipe(), settings, *recipe.resolver);
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : loop.phases()) phases.push_back(phase.name);
  const ContributionLayout largest = loop.largest_layout();
  const nlohmann::json out = {
      {"recipe", recipe.name},        {"total_steps", last_step_of(settings, *recipe.resolver, loop.recipe())},
      {"unit", loop.recipe().unit()}, {"phases", phases},
      {"mail", largest.exchange},     {"state", state_bytes(snapshot_layout(loop), largest.floats)}};
  fmt::print("{}\n", out.dump());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace tandem
