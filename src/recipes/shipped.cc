#include "recipes/shipped.h"

#include "recipes/gym_settings.h"
#include "recipes/tiny_rl_settings.h"
#include "recipes/tiny_settings.h"
#include "recipes/web_agent_settings.h"
#include "recipes/web_test_settings.h"

namespace tandem {

std::vector<RecipeInfo> shipped_recipes() {
  return {
      {"tiny", "a small classifier on generated data: dropout, batch norm, 24 shards",
       [] { return std::make_unique<TinySettings>(); }},
      {"tiny-rl", "a small Q-learner: shards own games and a replay ring",
       [] { return std::make_unique<TinyRlSettings>(); }},
      {"web-agent", "one of the six web-test agents: dueling double DQN, prioritized replay over all shards",
       [] { return std::make_unique<WebAgentSettings>(); }, WebAgentSettings::quick()},
      {"web-test", "all six web-test agents on all devices: one a device, each on all, or three of each",
       [] { return std::make_unique<WebTestSettings>(); }, WebAgentSettings::quick()},
      {"dqn", "dueling double DQN on any Gymnasium environment: --env gym:CartPole-v1",
       [] { return std::make_unique<GymSettings>(); }},
  };
}

}  // namespace tandem
