// recipes/eval_verb.h -- the verb `eval` of recipes that learn to act: greedy episodes of a run's agent in its own
// environment, the mean return with its interval beside that of random play, and a video where the environment draws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/recipe_list.h"
#include "rl/play.h"

namespace tandem {

class QFunction;

struct JudgedEnvironment {
  std::shared_ptr<const Environment> environment;
  std::string name;  // "gym:CartPole-v1"; empty: the recipe's name
};
// The environment of a run, from its settings. Throws Error.
using EnvironmentOf = std::function<JudgedEnvironment(const RecipeSettings&)>;

// The newest whole weights of a run, ready to answer.
struct JudgedAgent {
  int64_t observation_size = 0, actions = 0, action_size = 0;  // actions: 0 where they are continuous
  std::function<Policy(const Environment&)> greedy;            // environment and agent outlive the policy
  int64_t step = 0;
  std::string digest;
  std::vector<std::string> refused;  // newer checkpoints passed over, each with its reason
};
using AgentOf = std::function<JudgedAgent(const std::filesystem::path& run)>;  // throws Error
JudgedAgent dueling_agent(const std::filesystem::path& run);                   // of the DQN learner
JudgedAgent policy_agent(const std::filesystem::path& run);                    // of the PPO learner
JudgedAgent judged_values(std::shared_ptr<const QFunction> net, int64_t step, std::string digest,
                          std::vector<std::string> refused);

// `episodes`: where --episodes is not given. Episodes are played 64 at a time, whatever their number.
RecipeVerb greedy_eval_verb(EnvironmentOf environment, int64_t episodes = 1000, AgentOf agent = dueling_agent);

}  // namespace tandem
