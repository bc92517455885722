// apps/web_test/experience_at_start.h -- what a training begins with beside its settings: transitions of a real system,
// weights of a run.
#pragma once

#include <filesystem>

#include "command/command.h"
#include "config/resolved_recipe.h"

namespace tandem {

// Where the recipe names experience: reads it once, warns of bad lines, and writes its absolute paths and its digest
// into the settings. Throws ConfigError that says what is wrong with which line.
void take_experience(const Command& command, ResolvedRecipe& recipe);

// A resumed run finds the weights it began with in its own folder, wherever that is now.
void find_first_weights(ResolvedRecipe& recipe, const std::filesystem::path& run_dir);
inline constexpr char kFirstWeights[] = "from.safetensors";

}  // namespace tandem
