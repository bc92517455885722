// recipes/ppo_entry.h -- an entry for a recipe class that learns with PPO: recipe_entry() with the verb `eval`, for
// plain policies (net.kind = mlp).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "recipes/eval_verb.h"
#include "recipes/recipe_entry.h"

namespace tandem {

template <class RecipeType, class SettingsType>
RecipeEntry ppo_entry(std::string name, std::string summary) {
  RecipeEntry entry = recipe_entry<RecipeType, SettingsType>(std::move(name), std::move(summary));
  const auto environment = [](const RecipeSettings& settings) {
    const auto recipe = std::make_shared<const RecipeType>(dynamic_cast<const SettingsType&>(settings));
    return JudgedEnvironment{{recipe, &recipe->environment()}, ""};
  };
  entry.info.verbs.push_back(greedy_eval_verb(environment, 1000, policy_agent));
  return entry;
}

}  // namespace tandem
