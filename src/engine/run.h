// engine/run.h -- one run from its folder to its end: set up, restore, train until a stop rule, save, report.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

struct WorkRequest {
  std::filesystem::path run_dir;     // made by the launcher: recipe.toml is resolved and checked
  bool resume = false;               // go on from the newest whole checkpoint
  std::filesystem::path checkpoint;  // ... or from this one; what came after it is then abandoned
  bool json = false, quiet = false, color = true;
  double max_seconds = 0;          // 0: what the recipe says
  std::string program = "tandem";  // for advice: what the user types
};

// Returns the exit code. Errors that have a message for the user come out as Error.
int work(const WorkRequest& request, const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
