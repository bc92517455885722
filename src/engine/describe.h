// engine/describe.h -- what a job consists of, without training it: for forecasts.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// Builds the job of a run folder's recipe.toml without any shard and prints one object: "total_steps", "unit", "phases"
// and "state" (launch/usage_book.h). Returns the exit code.
int describe(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
