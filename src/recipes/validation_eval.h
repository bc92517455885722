// recipes/validation_eval.h -- `eval` of a recipe with validation sets: the metrics of a run's checkpoint.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

// The weights are restored and validated by the program's worker: the numbers are those of training, to the bit, on a
// device of the same kind.
RecipeVerb validation_eval_verb();

}  // namespace tandem
