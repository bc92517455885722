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

// Parts of a schedule that are given in epochs become steps, written into the settings. Throws ConfigError if the
// recipe has no epochs.
void schedule_in_steps(const Recipe& recipe, RecipeSettings& settings, Resolver& resolver);

// A schedule that ends with the run, if it says no other end. Throws ConfigError if the run has none in steps.
void end_schedule_at(int64_t last_step, RecipeSettings& settings, Resolver& resolver);

}  // namespace tandem
