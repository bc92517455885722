// apps/options/options_entry.h -- what the app of `options` adds to the recipe: its set of folds and seeds, its data,
// and its commands.
#pragma once

#include <vector>

#include "config/recipe_list.h"

namespace tandem {

std::vector<RecipeInfo> with_options(std::vector<RecipeInfo> recipes);

}  // namespace tandem
