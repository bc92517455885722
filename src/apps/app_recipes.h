// apps/app_recipes.h -- every recipe that comes with tandem, with the commands that its app adds; and the commands that
// belong to no recipe.
#pragma once

#include <vector>

#include "recipes/shipped.h"

namespace tandem {

std::vector<RecipeInfo> app_recipes(const AgentOnGpu& on_gpu = {});
std::vector<RecipeVerb> app_verbs();

}  // namespace tandem
