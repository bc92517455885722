// recipes/experience_at_start.h -- what a training with the DQN begins with beside its settings: transitions of a real
// system, weights of a run.
#pragma once

#include <filesystem>

#include "config/recipe_list.h"

namespace tandem {

// Gives the entry of a recipe with DqnSettings the functions below, as what is done before a run begins or goes on.
void begin_with_experience(RecipeInfo& info);

// Where the recipe names experience: reads it once, warns of bad lines, and writes its absolute paths and its digest
// into the settings. Throws ConfigError that says what is wrong with which line.
void take_experience(const Command& command, ResolvedRecipe& recipe);

// Checkpoints of earlier versions lack settings that decide the weights, which check_compatible() then can't compare:
// throws ConfigError where the command line sets one of them.
void keep_experience_settings(const ResolvedRecipe& recipe, const std::filesystem::path& run_dir);

// A resumed run finds the weights it began with in its own folder, wherever that is now.
void find_first_weights(ResolvedRecipe& recipe, const std::filesystem::path& run_dir);
inline constexpr char kFirstWeights[] = "from.safetensors";

}  // namespace tandem
