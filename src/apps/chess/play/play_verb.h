// apps/chess/play/play_verb.h -- `tandem play chess RUN`: in the terminal, or for a GUI with --uci.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb play_verb();

}  // namespace tandem
