#include "recipes/gym_eval.h"

#include "command/command.h"
#include "command/sources.h"
#include "recipes/eval_verb.h"
#include "recipes/gym_ppo_settings.h"
#include "recipes/gym_settings.h"
#include "recipes/history_eval.h"
#include "rl/gym/gym_environment.h"
#include "runs/run_folder.h"

namespace tandem {
namespace {

constexpr int64_t kEpisodes = 100, kLive = 64;  // Python plays some thousand steps a second

template <class SettingsType>
JudgedEnvironment environment_of_run(const RecipeSettings& settings) {
  const auto& s = dynamic_cast<const SettingsType&>(settings);
  return {std::make_shared<const GymEnvironment>(s.gym_options(kLive), s.longest, false), s.id};
}

}  // namespace

RecipeVerb gym_eval_verb() {
  RecipeVerb verb = greedy_eval_verb(environment_of_run<GymSettings>, kEpisodes);
  verb.run = [in_environment = verb.run](const Command& command) {
    const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
    const Output quiet(false, true, false, true);  // what is odd about the settings is said once, below
    const ResolvedRecipe recipe = resolve_run(run.recipe_toml(), command.arguments, command.context, quiet);
    const auto& settings = dynamic_cast<const GymSettings&>(*recipe.settings);
    return settings.offline() ? eval_by_history(command, run, settings) : in_environment(command);
  };
  verb.examples.push_back({"eval last", "of a run that learned from --experience alone: by its held-out episodes"});
  return verb;
}

RecipeVerb gym_ppo_eval_verb() { return greedy_eval_verb(environment_of_run<GymPpoSettings>, kEpisodes, policy_agent); }

}  // namespace tandem
