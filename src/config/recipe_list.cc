#include "config/recipe_list.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "config/spelling.h"

namespace tandem {
namespace {

// Recipes that are announced and not here yet. Whose recipe comes, its line goes:
// Recipes.APlannedOneIsNotOneThatIsHere.
constexpr PlannedRecipe kPlanned[] = {{"chess", "a chess player that learns by self-play"},
                                      {"lab", "ResNet-50, BERT-Base and GPT-2 small"}};

}  // namespace

std::span<const PlannedRecipe> planned_recipes() { return kPlanned; }

const RecipeInfo& find_recipe(const std::vector<RecipeInfo>& recipes, std::string_view name) {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  for (const PlannedRecipe& planned : kPlanned)
    if (planned.name == name)
      throw ConfigError(fmt::format("the recipe {} is not here yet", name),
                        fmt::format("it is planned: {}. This version has: {}", planned.what, fmt::join(names, ", ")),
                        "train one of these, or write your own (docs/your-own.md)");
  const std::string near = nearest_word(name, names);
  throw ConfigError(fmt::format("there is no recipe \"{}\"", printable(name)),
                    fmt::format("the recipes are: {}", fmt::join(names, ", ")),
                    near.empty()
                        ? "choose one of them, or give the path of a .toml file that names one (`recipe = \"...\"`)"
                        : fmt::format("did you mean `{}`?", near));
}

}  // namespace tandem
