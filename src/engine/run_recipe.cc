#include "engine/run_recipe.h"

#include <torch/torch.h>

#include "base/file_system.h"
#include "engine/determinism.h"
#include "nn/portable_vector.h"

namespace tandem {

RunRecipe recipe_of_run_folder(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes) {
  const FileBytes text = read_whole_file(FileSystem::real(), run_dir / "recipe.toml", 1 << 20);
  RunRecipe run;
  run.entry = &find_recipe_entry(recipes, recipe_named_in(text.text(), "recipe.toml").value_or(""));
  run.name = run.entry->info.name;
  run.settings = run.entry->info.settings();
  run.resolver = std::make_unique<Resolver>(*run.settings);
  run.resolver->apply_toml(text.text(), "recipe.toml");
  freeze(*run.resolver, *run.settings, 1);
  use_portable_vector();
  set_determinism();
  return run;
}

std::unique_ptr<Recipe> RunRecipe::make() const {
  torch::manual_seed(static_cast<uint64_t>(settings->seed));  // lint: allow(random) for constructors of users
  return entry->make(*settings);
}

}  // namespace tandem
