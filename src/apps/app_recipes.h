// apps/app_recipes.h -- every recipe that comes with tandem, with the commands that its app adds.
#pragma once

#include <vector>

#include "recipes/shipped.h"

namespace tandem {

std::vector<RecipeInfo> app_recipes(const AgentOnGpu& on_gpu = {});

}  // namespace tandem
