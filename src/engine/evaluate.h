// engine/evaluate.h -- `evaluate`: the validation of one checkpoint of a run, or an answer from it, by one process.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// Builds the job of the run's recipe.toml with all its shards, restores the checkpoint, goes through the validation
// sets and prints one object: "step", "metrics", "order" (of their names), "samples" by set, "seconds", "kind". Throws
// Error.
int evaluate(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
             const std::vector<RecipeEntry>& recipes);

// The same, but in place of validation the recipe answers the question of a file (Recipe::answer): one object with
// "step", "answer", "seconds", "digest", "trained_on" and "kind".
int ask(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint,
        const std::filesystem::path& question, const std::vector<RecipeEntry>& recipes);

// Whether this process is one of ask(): a recipe may do without its data then, and its dataset() is never looked into.
bool only_answers();

}  // namespace tandem
