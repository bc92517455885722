// recipes/tiny_rl_eval.h -- the verb `eval` of `tiny-rl`: its net plays the catch game.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb tiny_rl_eval_verb();

}  // namespace tandem
