// cli/program.h -- a whole training program from a list of recipes: `tandem-worker`, and a user's own.
//
// The program has every command of `tandem` (train, resume, runs, digest, export, report, ...) for its recipes, and is
// its own worker. It returns the exit code; errors are printed with what, why and what to do.
#pragma once

#include <string>
#include <vector>

#include "cli/cli_main.h"
#include "engine/recipe.h"

namespace tandem {

int program_main(int argc, char** argv, const std::string& name, const std::vector<RecipeEntry>& recipes);

// An entry for a recipe class with a settings struct: recipe_entry<MyRecipe, MySettings>("name", "one line").
template <class RecipeType, class SettingsType>
RecipeEntry recipe_entry(std::string name, std::string summary) {
  return {{std::move(name), std::move(summary), [] { return std::make_unique<SettingsType>(); }},
          [](const RecipeSettings& s) { return std::make_unique<RecipeType>(dynamic_cast<const SettingsType&>(s)); }};
}

}  // namespace tandem
