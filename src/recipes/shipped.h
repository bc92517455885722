// recipes/shipped.h -- the recipes that come with tandem, each a run of its own. apps/app_recipes.h adds the sets of
// jobs made of them, and their commands.
#pragma once

#include <vector>

#include "config/recipe_list.h"
#include "engine/recipe_entry_fwd.h"
#include "recipes/act.h"

namespace tandem {

std::vector<RecipeInfo> shipped_recipes(const AgentOnGpu& on_gpu = {});  // needs no libtorch

// For a worker, by libtorch: agents that answer from its GPU, and entries of those of `infos` that it can train.
AgentOnGpu agents_on_gpu();
std::vector<RecipeEntry> with_makers(std::vector<RecipeInfo> infos);

}  // namespace tandem
