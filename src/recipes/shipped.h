// recipes/shipped.h -- the recipes that come with tandem.
#pragma once

#include <vector>

#include "config/recipe_list.h"
#include "engine/recipe_entry_fwd.h"

namespace tandem {

std::vector<RecipeInfo> shipped_recipes();          // names and settings; needs no libtorch
std::vector<RecipeEntry> shipped_recipe_entries();  // the same list with its makers, for a worker

}  // namespace tandem
