// cli/verbs.h -- the commands that a program has beside the usual ones: its own, and those that recipes bring, each
// once. Several recipes may have one of the same name; the run that the line names tells whose is meant.
#pragma once

#include <string>
#include <vector>

#include "command/context.h"
#include "config/recipe_list.h"

namespace tandem {

// "output" of "-o,--output". Throws std::logic_error if there is no long name.
std::string first_long_name(const std::string& names);

// All of a program: its own, then those of its recipes.
std::vector<RecipeVerb> verbs_of(const CliContext& context);

// Each with the flags and examples of all recipes that have it, and a run() that chooses among them by the run.
// Throws std::logic_error where two recipes mean different things by one flag.
std::vector<RecipeVerb> merged_verbs(const std::vector<RecipeInfo>& recipes);

// "web-agent, dqn"
std::string recipes_with(const std::vector<RecipeInfo>& recipes, const std::string& verb);

}  // namespace tandem
