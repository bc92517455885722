// command/context.h -- what a program is, as its commands see it: its name, its recipes, its worker, its devices.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/devices.h"
#include "config/recipe_list.h"

namespace tandem {

struct CliContext {
  std::string program;              // "tandem": the name used in help and advice
  std::string version;              // "0.1.0"
  std::vector<RecipeInfo> recipes;  // the first one serves as the example in the help
  std::vector<RecipeVerb> verbs;    // commands that belong to no recipe: games
  std::filesystem::path worker;     // the program that does the training
  Machine machine;                  // devices this build and machine offer; default: CPU only

  bool first_is_default = false;  // of a user's own program: without a name the first recipe is meant

  // A recipe to show in examples and advice.
  std::string example() const { return recipes.empty() ? "RECIPE" : recipes.front().name; }
};

}  // namespace tandem
