// engine/last_step.h -- when is a run done?
#pragma once

#include <cstdint>

#include "config/resolver.h"
#include "config/run_settings.h"
#include "engine/recipe.h"

namespace tandem {

// The step at which the run is done; 0 if only time limits it. A unit that the user asked for wins over the recipe's
// default number of steps.
int64_t last_step_of(const RecipeSettings& settings, const Resolver& resolver, const Recipe& recipe);

}  // namespace tandem
