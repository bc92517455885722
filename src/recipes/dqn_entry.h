// recipes/dqn_entry.h -- an entry for a recipe class that learns with the DQN: recipe_entry() with the verbs `act` and
// `eval`, and experience to begin with where its settings have a history_shape().
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "recipes/eval_verb.h"
#include "recipes/experience_at_start.h"
#include "recipes/recipe_entry.h"
#include "recipes/shipped.h"

namespace tandem {

template <class RecipeType, class SettingsType>
RecipeEntry dqn_entry(std::string name, std::string summary) {
  RecipeEntry entry = recipe_entry<RecipeType, SettingsType>(std::move(name), std::move(summary));
  entry.info.verbs.push_back(act_verb(agents_on_gpu()));
  entry.info.verbs.push_back(greedy_eval_verb([](const RecipeSettings& settings) {
    const auto recipe = std::make_shared<const RecipeType>(dynamic_cast<const SettingsType&>(settings));
    return JudgedEnvironment{{recipe, &recipe->environment()}, ""};
  }));
  begin_with_experience(entry.info);
  return entry;
}

}  // namespace tandem
