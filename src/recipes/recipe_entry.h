// recipes/recipe_entry.h -- an entry of a program's list from a recipe class and its settings.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/recipe.h"
#include "engine/supervised.h"
#include "recipes/validation_eval.h"

namespace tandem {

// recipe_entry<MyRecipe, MySettings>("name", "one line"). What else an entry may bring (flags, verbs, presets for
// `bench`, needs) is in its `info`: config/recipe_list.h.
template <class RecipeType, class SettingsType>
RecipeEntry recipe_entry(std::string name, std::string summary) {
  RecipeInfo info{std::move(name), std::move(summary), [] { return std::make_unique<SettingsType>(); }};
  if constexpr (std::is_base_of_v<SupervisedRecipe, RecipeType>) info.verbs = {validation_eval_verb()};
  return {std::move(info),
          [](const RecipeSettings& s) { return std::make_unique<RecipeType>(dynamic_cast<const SettingsType&>(s)); }};
}

}  // namespace tandem
