// apps/web_test/entry.h -- what web-test adds to the commands: the recipe `web-test`, and for its agents `eval` and
// `train --from`.
#pragma once

#include <vector>

#include "config/recipe_list.h"

namespace tandem {

// `web-test` after the recipe of its agents, which gets the commands of both.
std::vector<RecipeInfo> with_web_test(std::vector<RecipeInfo> recipes);

}  // namespace tandem
