// recipes/web_agent.cc -- one web-test agent: a world of world/web_agents.h, learned by rl/dqn.h.
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "recipes/web_environment.h"
#include "rl/dqn.h"

namespace tandem {

std::unique_ptr<Recipe> make_web_agent(const WebAgentSettings& settings) {
  return std::make_unique<Dqn>(settings, std::make_unique<WebEnvironment>(web_agent_of(settings.agent)));
}

}  // namespace tandem
