// apps/chess/match/match_verb.h -- `tandem match A B`: games between two players, and what they show.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb match_verb();

}  // namespace tandem
