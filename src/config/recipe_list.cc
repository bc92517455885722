#include "config/recipe_list.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "config/spelling.h"

namespace tandem {

const RecipeInfo& find_recipe(const std::vector<RecipeInfo>& recipes, std::string_view name) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  const std::string near = nearest_word(name, names);
  throw ConfigError(fmt::format("there is no recipe \"{}\"", printable(name)),
                    fmt::format("the recipes are: {}", fmt::join(names, ", ")),
                    near.empty()
                        ? "choose one of them, or give the path of a .toml file that names one (`recipe = \"...\"`)"
                        : fmt::format("did you mean `{}`?", near));
}

}  // namespace tandem
