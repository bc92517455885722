// cli/program.h -- a whole training program from a list of recipes: `tandem-worker`, and a user's own.
//
// The program has every command of `tandem` (train, resume, runs, digest, export, report, ...) for its recipes, with
// what their entries add, and is its own worker. It returns the exit code; errors are printed with what, why and what
// to do.
#pragma once

#include <string>
#include <vector>

#include "engine/recipe_entry_fwd.h"

namespace tandem {

int program_main(int argc, char** argv, const std::string& name, const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
