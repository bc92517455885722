// recipes/gym_eval.h -- the verb `eval` of `dqn`: in the Gymnasium environment that the run's settings name.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb gym_eval_verb();

}  // namespace tandem
