#include <map>

#include "engine/recipe.h"
#include "recipes/gym_ppo_settings.h"
#include "recipes/gym_settings.h"
#include "recipes/makers.h"
#include "recipes/options_settings.h"
#include "recipes/shipped.h"
#include "recipes/tiny_rl_settings.h"
#include "recipes/tiny_settings.h"
#include "recipes/video_settings.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn/gpu_agent.h"

namespace tandem {

std::vector<RecipeEntry> with_makers(std::vector<RecipeInfo> infos) {
  using Make = std::function<std::unique_ptr<Recipe>(const RecipeSettings&)>;
  const std::map<std::string, Make> makers{
      {"tiny", [](const RecipeSettings& s) { return make_tiny(dynamic_cast<const TinySettings&>(s)); }},
      {"tiny-rl", [](const RecipeSettings& s) { return make_tiny_rl(dynamic_cast<const TinyRlSettings&>(s)); }},
      {"web-agent", [](const RecipeSettings& s) { return make_web_agent(dynamic_cast<const WebAgentSettings&>(s)); }},
      {"dqn", [](const RecipeSettings& s) { return make_gym_dqn(dynamic_cast<const GymSettings&>(s)); }},
      {"options", [](const RecipeSettings& s) { return make_options(dynamic_cast<const OptionsSettings&>(s)); }},
      {"video", [](const RecipeSettings& s) { return make_video(dynamic_cast<const VideoSettings&>(s)); }},
      {"ppo", [](const RecipeSettings& s) { return make_gym_ppo(dynamic_cast<const GymPpoSettings&>(s)); }},
  };
  std::vector<RecipeEntry> entries;
  for (RecipeInfo& info : infos) {
    const auto maker = makers.find(info.name);  // a set of jobs has none: its workers train its jobs
    if (maker != makers.end()) entries.push_back({std::move(info), maker->second});
  }
  return entries;
}

AgentOnGpu agents_on_gpu() { return agent_on_gpu; }

}  // namespace tandem
