// config/resolved_recipe.h -- a recipe with its settings, gathered from all their sources.
#pragma once

#include <memory>
#include <string>

#include "config/resolver.h"

namespace tandem {

struct ResolvedRecipe {
  std::string name;
  std::unique_ptr<RecipeSettings> settings;
  std::unique_ptr<Resolver> resolver;  // refers to *settings
};

}  // namespace tandem
