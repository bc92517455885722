// apps/options/data_check.h -- `tandem data check options DIR`: what is wrong with a folder of market data, by file and
// line.
#pragma once

#include "config/recipe_list.h"

namespace tandem {

RecipeVerb data_verb();

}  // namespace tandem
