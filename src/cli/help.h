// cli/help.h -- help that opens with commands to copy and shows the values the flags have now.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "command/context.h"
#include "config/resolver.h"

namespace tandem {

// `recipes` are those whose flags the command has. `resolver` may be null: then no values are shown. `recipe` is whose
// values they are. `all_keys` lists every key of the recipe below the flags.
std::string help_text(const CLI::App& app, const std::string& full_name, const std::vector<RecipeInfo>& recipes,
                      const Resolver* resolver, const std::string& recipe, bool all_keys);

}  // namespace tandem
