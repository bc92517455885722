// recipes/web_agent.cc -- web-test agents, one or several side by side: an environment of world/web_agents.h, learned
// by rl/dqn/dqn.h.
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "recipes/web_gpu_environment.h"
#include "rl/dqn/dqn.h"

namespace tandem {

std::unique_ptr<Recipe> make_web_agent(const WebAgentSettings& settings) {
  std::vector<Dqn::Named> agents;
  for (const std::string& name : settings.agents())
    agents.push_back({name, std::make_unique<WebGpuEnvironment>(web_agent_of(name))});
  return std::make_unique<Dqn>(settings, std::move(agents));
}

}  // namespace tandem
