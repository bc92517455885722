// recipes/gym_eval.h -- the verb `eval` of `dqn` and `ppo`: in the Gymnasium environment that the run's settings name;
// of a dqn that learned from recorded transitions alone by its held-out episodes (recipes/history_eval.h).
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb gym_eval_verb();
RecipeVerb gym_ppo_eval_verb();

}  // namespace tandem
