// engine/evaluate.h -- `evaluate`: the validation of one checkpoint of a run, by one process.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// Builds the job of the run's recipe.toml with all its shards, restores the checkpoint, goes through the validation
// sets and prints one object: "step", "metrics", "samples" by set, "seconds", "kind". Throws Error.
int evaluate(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
             const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
