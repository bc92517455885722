// recipes/makers.h -- one maker per recipe; what each is stands at the top of its own file.
#pragma once

#include <memory>

namespace tandem {

class Recipe;
struct TinySettings;
struct TinyRlSettings;
struct GymSettings;
struct GymPpoSettings;
struct OptionsSettings;
struct VideoSettings;
struct WebAgentSettings;

std::unique_ptr<Recipe> make_tiny(const TinySettings& settings);
std::unique_ptr<Recipe> make_tiny_rl(const TinyRlSettings& settings);
std::unique_ptr<Recipe> make_gym_dqn(const GymSettings& settings);
std::unique_ptr<Recipe> make_gym_ppo(const GymPpoSettings& settings);
std::unique_ptr<Recipe> make_options(const OptionsSettings& settings);
std::unique_ptr<Recipe> make_video(const VideoSettings& settings);
std::unique_ptr<Recipe> make_web_agent(const WebAgentSettings& settings);

}  // namespace tandem
