#include "recipes/web_test_jobs.h"

#include <algorithm>

#include "world/scale.h"

namespace tandem {
namespace {

// Seconds of `--quick` on one core (docs/web-agent.md), as shares of their mean: worlds differ in what a turn costs.
constexpr double kWorldCost[] = {1.06, 1.04, 1.03, 1.15, 0.88, 0.84};

size_t number_of(const std::string& agent) {
  const std::vector<std::string> all = WebTestSettings::all_agents();
  return static_cast<size_t>(std::find(all.begin(), all.end(), agent) - all.begin());
}

std::vector<AgentJob> members_of(const std::string& agent, const WebTestSettings& settings) {
  const auto member = [&](const char* kind, int64_t seed, int64_t explore) {
    return AgentJob{agent + "-" + kind,
                    agent,
                    -1,
                    {{"seed", std::to_string(seed)}, {"epsilon.steps", std::to_string(std::max<int64_t>(1, explore))}}};
  };
  return {member("conservative", settings.seed + 1, settings.epsilon_steps / 2),
          member("aggressive", settings.seed + 2, settings.epsilon_steps * 2),
          {agent + "-balanced", agent, -1}};
}

}  // namespace

std::vector<AgentJob> jobs_of_agents(const WebTestSettings& settings, int devices) {
  std::vector<AgentJob> jobs;
  for (const std::string& agent : agents_named(settings.agents)) {
    if (settings.strategy == "ensemble") {
      for (AgentJob& member : members_of(agent, settings)) jobs.push_back(std::move(member));
    } else {
      jobs.push_back({agent, agent, -1});
    }
  }
  for (const auto& [agent, device] : pins_named(settings.assign, devices)) {
    bool there = false;
    for (AgentJob& job : jobs)
      if (job.agent == agent) job.pin = device, there = true;
    if (!there)
      throw ConfigError(fmt::format("--assign names {}, which --agents leaves out", agent),
                        fmt::format("trained are: {}", settings.agents), "take it out of --assign, or add it");
  }
  return jobs;
}

double flops_of_step(const WebAgentSettings& settings) {
  double weights = 0, width = 128;
  for (const int64_t hidden : settings.net.hidden) {
    weights += width * static_cast<double>(hidden);
    width = static_cast<double>(hidden);
  }
  weights += 2 * width * static_cast<double>(settings.net.head);
  const double batch = static_cast<double>(settings.batch_size);
  const double acting = static_cast<double>(settings.shards * settings.environments);
  // Forward of this state, of the next by both networks, and backward; acting is one forward.
  double flops = weights * (10 * batch + 2 * acting);
  if (settings.net.attention) flops *= 3.5;  // measured
  return flops * kWorldCost[number_of(settings.agent)];
}

double rule_score(const std::string& agent) {
  const WebScale& scale = kWebScale[number_of(agent)];
  return scale.score(scale.rule.mean);
}

}  // namespace tandem
