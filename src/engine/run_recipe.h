// engine/run_recipe.h -- the recipe of a run folder, for a process that looks at a job without training it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "config/resolved_recipe.h"
#include "engine/recipe.h"

namespace tandem {

// Settings from its recipe.toml, frozen; libtorch made deterministic. Throws Error.
struct RunRecipe : ResolvedRecipe {
  const RecipeEntry* entry = nullptr;
  // Seeds libtorch first. After take_device(): libtorch looks for its CUDA libraries once, when it is first asked.
  std::unique_ptr<Recipe> make() const;
};
RunRecipe recipe_of_run_folder(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
