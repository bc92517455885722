// apps/data_verb.h -- `tandem data`: looks at files of data before a training, and decodes videos. Which recipe's, the
// second word says.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb data_verb();

}  // namespace tandem
