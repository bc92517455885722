// apps/chess/perft/perft_verb.h -- `tandem perft DEPTH [FEN]`: counts the games of some length, on a CPU core or a GPU.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb perft_verb();

}  // namespace tandem
