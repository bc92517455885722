#include "apps/web_test/web_test_jobs.h"

#include <algorithm>
#include <set>

#include "apps/web_test/web_test_costs.h"
#include "world/scale.h"

namespace tandem {
namespace {

// Processor time of a default step, as shares of their mean: environments differ little in what a turn costs.
constexpr double kEnvironmentCost[] = {1.00, 0.98, 1.02, 1.05, 1.00, 0.95};
constexpr double kOneMoreOnGpu = 0.15;  // of a step's time that an agent beside others adds (docs/results.md)

size_t number_of(const std::string& agent) {
  const std::vector<std::string> all = WebTestSettings::all_agents();
  return static_cast<size_t>(std::find(all.begin(), all.end(), agent) - all.begin());
}

std::vector<AgentJob> members_of(const std::string& agent, const WebTestSettings& settings) {
  const auto member = [&](const char* kind, int64_t seed, int64_t explore) {
    return AgentJob{{agent},
                    kind,
                    -1,
                    {{"seed", std::to_string(seed)}, {"epsilon.steps", std::to_string(std::max<int64_t>(1, explore))}}};
  };
  return {member("conservative", settings.seed + 1, settings.epsilon_steps / 2),
          member("aggressive", settings.seed + 2, settings.epsilon_steps * 2),
          {{agent}, "balanced"}};
}

}  // namespace

std::vector<AgentJob> jobs_of_agents(const WebTestSettings& settings, int devices) {
  std::vector<AgentJob> jobs;
  for (const std::string& agent : agents_named(settings.agents)) {
    if (settings.strategy == "ensemble") {
      for (AgentJob& member : members_of(agent, settings)) jobs.push_back(std::move(member));
    } else {
      jobs.push_back({{agent}});
    }
  }
  for (const auto& [agent, device] : pins_named(settings.assign, devices)) {
    bool there = false;
    for (AgentJob& job : jobs)
      if (job.agents.front() == agent) job.pin = device, there = true;
    if (!there)
      throw ConfigError(fmt::format("--assign names {}, which --agents leaves out", agent),
                        fmt::format("trained are: {}", settings.agents), "take it out of --assign, or add it");
  }
  return jobs;
}

std::string AgentJob::member_name(const std::string& agent) const { return kind.empty() ? agent : agent + "-" + kind; }

std::string AgentJob::name() const {
  if (agents.size() == 1) return member_name(agents.front());
  return member_name(fmt::format("{}+{}", agents.front(), agents.size() - 1));
}

int batched_runs(const WebTestSettings& settings, const std::vector<DeviceSpec>& devices) {
  if (!can_share(settings)) return 0;
  const DeviceSpec& first = devices.front();
  const bool alike = std::ranges::all_of(devices, [&](const DeviceSpec& device) {
    return device.kind == DeviceSpec::Kind::kCuda && device.gpu.name == first.gpu.name && device.speed == first.speed;
  });
  std::set<int> gpus;  // one may be named several times
  for (const DeviceSpec& device : devices) gpus.insert(device.index);
  if (settings.together == "on") return alike ? static_cast<int>(gpus.size()) : 1;
  return alike && gpus.size() < agents_named(settings.agents).size() ? static_cast<int>(gpus.size()) : 0;
}

std::vector<AgentJob> side_by_side(const std::vector<AgentJob>& jobs, int runs) {
  std::vector<AgentJob> dealt;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (j < static_cast<size_t>(runs))
      dealt.push_back(jobs[j]);
    else
      dealt[j % static_cast<size_t>(runs)].agents.push_back(jobs[j].agents.front());
  }
  return dealt;
}

double flops_of_step(const WebAgentSettings& settings, bool on_gpus) {
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
  double cost = 0;
  const std::vector<std::string> agents = settings.agents();
  for (const std::string& agent : agents) cost += kEnvironmentCost[number_of(agent)];
  const auto count = static_cast<double>(agents.size());
  return flops * cost * (on_gpus ? (1 + kOneMoreOnGpu * (count - 1)) / count : 1);
}

double rule_score(const std::string& agent) {
  const WebScale& scale = kWebScale[number_of(agent)];
  return scale.score(scale.rule.mean);
}

}  // namespace tandem
