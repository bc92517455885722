#include "recipes/gym_eval.h"

#include "recipes/eval_verb.h"
#include "recipes/gym_settings.h"
#include "rl/gym/gym_environment.h"

namespace tandem {
namespace {

constexpr int64_t kEpisodes = 100, kLive = 64;  // Python plays some thousand steps a second

JudgedEnvironment environment_of_run(const RecipeSettings& settings) {
  const auto& s = dynamic_cast<const GymSettings&>(settings);
  return {std::make_shared<const GymEnvironment>(GymOptions{.environment = s.id,
                                                            .arguments = s.arguments,
                                                            .python = s.python,
                                                            .timeout_seconds = s.timeout,
                                                            .restarts = s.restarts,
                                                            .live = kLive},
                                                 s.longest, false),
          s.id};
}

}  // namespace

RecipeVerb gym_eval_verb() { return greedy_eval_verb(environment_of_run, kEpisodes); }

}  // namespace tandem
