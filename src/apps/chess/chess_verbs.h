// apps/chess/chess_verbs.h -- the commands of chess that need no trained network.
#pragma once

#include <vector>

#include "config/recipe_list.h"

namespace tandem {

std::vector<RecipeVerb> chess_verbs();

}  // namespace tandem
