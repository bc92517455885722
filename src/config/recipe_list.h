// config/recipe_list.h -- the recipes a program knows. main() passes the list in; there is no global registry.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_settings.h"

namespace tandem {

struct RecipeInfo {
  std::string name, summary;
  std::function<std::unique_ptr<RecipeSettings>()> settings;
  std::vector<std::pair<std::string, std::string>> quick = {};  // keys and values of `--quick`; empty: it has no such
};

// Throws ConfigError with the nearest name and the list.
const RecipeInfo& find_recipe(const std::vector<RecipeInfo>& recipes, std::string_view name);

}  // namespace tandem
