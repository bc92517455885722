#include "apps/web_test/web_test_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/web_test/web_evaluation.h"
#include "apps/web_test/web_test_jobs.h"
#include "base/errors.h"
#include "base/file_system.h"
#include "command/start.h"
#include "rl/dqn/trained_agent.h"
#include "runs/agent_runs.h"
#include "world/scale.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJudgedEpisodes = 300;

bool is_there(const fs::path& dir, const AgentJob& plan) {
  std::error_code none;
  return fs::exists(dir / "agents" / plan.name() / "recipe.toml", none);
}

// The settings of one agent of a job: the set's, those for it alone, and what its place in an ensemble adds. A run that
// is there already keeps its own, and takes what was given now.
void take_settings(Resolver& resolver, const AgentJob& plan, const std::string& agent, const ResolvedRecipe& whole,
                   const fs::path& dir) {
  if (is_there(dir, plan)) {
    const fs::path recipe_toml = dir / "agents" / plan.name() / "recipe.toml";
    const FileBytes text = read_whole_file(FileSystem::real(), recipe_toml, 1 << 20);
    resolver.apply_toml(text.text(), recipe_toml.string());
    resolver.take(*whole.resolver, agent, 2);
    return;
  }
  resolver.take(*whole.resolver, agent);
  resolver.set("agent", fmt::format("{}", fmt::join(plan.agents, ",")), "web-test");
  for (const auto& [key, value] : plan.own) resolver.set(key, value, "--strategy ensemble");
}

nlohmann::json values_of(const AgentJob& plan, const std::string& agent, const ResolvedRecipe& whole,
                         const fs::path& dir) {
  WebAgentSettings settings;
  Resolver resolver(settings);
  take_settings(resolver, plan, agent, whole, dir);
  nlohmann::json values = resolver.to_json();
  values.erase("agent");
  return values;
}

// Runs of several agents that are in the folder take the place of their agents' own; also of those not asked for.
std::vector<AgentJob> with_those_there(std::vector<AgentJob> plans, const fs::path& dir, const JobSet::Say& say) {
  std::error_code none;
  if (dir.empty() || !fs::is_directory(dir / "agents", none)) return plans;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(dir / "agents", none)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    if (folder.filename().string().find('+') == std::string::npos || !fs::exists(folder / "recipe.toml")) continue;
    AgentJob there{agent_runs_of(folder).names()};
    const std::string name = folder.filename().string();
    if (const size_t dash = name.find('-'); dash != std::string::npos) there.kind = name.substr(dash + 1);
    const auto is_of = [&](const AgentJob& plan) {
      return plan.kind == there.kind && std::ranges::find(there.agents, plan.agents.front()) != there.agents.end();
    };
    const auto at = std::ranges::find_if(plans, is_of);
    if (at == plans.end()) continue;
    there.pin = at->pin;
    const auto wanted = std::ranges::count_if(plans, is_of);
    if (wanted < static_cast<int64_t>(there.agents.size()))
      say(fmt::format("{} go on together: they are one run", fmt::join(there.agents, ", ")));
    *at = there;
    std::erase_if(plans, [&](const AgentJob& plan) { return plan.agents.size() == 1 && is_of(plan); });
  }
  return plans;
}

// Those that are still to begin and differ in nothing but their agent, side by side.
std::vector<AgentJob> batched(std::vector<AgentJob> plans, const ResolvedRecipe& whole, const fs::path& dir, int runs) {
  std::vector<AgentJob> out;
  while (runs > 0 && !plans.empty()) {
    const AgentJob first = plans.front();
    std::vector<AgentJob> alike;
    const nlohmann::json values = values_of(first, first.agents.front(), whole, dir);
    const auto is_alike = [&](const AgentJob& plan) {
      return plan.kind == first.kind && plan.pin == first.pin && plan.agents.size() == 1 && !is_there(dir, plan) &&
             values_of(plan, plan.agents.front(), whole, dir) == values;
    };
    if (is_alike(first)) {
      std::ranges::copy_if(plans, std::back_inserter(alike), is_alike);
      std::erase_if(plans, is_alike);
      for (AgentJob& job : side_by_side(alike, runs)) out.push_back(std::move(job));
    } else {
      out.push_back(first);
      plans.erase(plans.begin());
    }
  }
  out.insert(out.end(), plans.begin(), plans.end());
  return out;
}

PreparedJob prepare_job(const AgentJob& plan, const ResolvedRecipe& whole, const fs::path& dir, bool on_gpus) {
  PreparedJob one;
  one.job.name = plan.name();
  one.job.dir = dir / "agents" / one.job.name;
  one.job.pin = plan.pin;
  auto settings = std::make_unique<WebAgentSettings>();
  const WebAgentSettings& agent_settings = *settings;
  one.settings = std::move(settings);
  one.resolver = std::make_unique<Resolver>(*one.settings);
  one.is_new = !is_there(dir, plan);
  take_settings(*one.resolver, plan, plan.agents.front(), whole, dir);
  for (const std::string& agent : plan.agents)
    if (values_of(plan, agent, whole, dir) != values_of(plan, plan.agents.front(), whole, dir))
      throw ConfigError(fmt::format("{} and {} can't have settings of their own any more", plan.agents.front(), agent),
                        fmt::format("they learn side by side in one run, {}", one.job.dir.string()),
                        "give the setting without an agent's name: it holds for all of them");
  one.resolver->set("devices", "", "web-test");  // the set says where and how long, at every start
  one.resolver->set("max_time", "", "web-test");
  freeze(*one.resolver, *one.settings, 1);
  if (!one.is_new)
    if (const auto manifest = newest_manifest(one.job.dir / "checkpoints"))
      check_compatible(manifest->settings, one.resolver->result_values(), one.job.name);
  one.job.steps = one.settings->steps;
  one.job.shards = static_cast<int>(one.settings->shards);
  one.job.flops = flops_of_step(agent_settings, on_gpus);
  if (plan.agents.size() == 1) {
    one.job.agent = plan.agents.front();
    one.job.rule_score = rule_score(one.job.agent);
    return one;
  }
  for (const std::string& agent : plan.agents)
    one.job.members.push_back({plan.member_name(agent), agent, rule_score(agent)});
  return one;
}

// Agents that learned side by side have weights of their own in one run, and so a digest of their own: the one that
// each would have alone.
void add_digests(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) {
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (jobs[j].dir.filename() == jobs[j].name || status[j].step == 0) continue;
    try {
      status[j].digest = load_agent(jobs[j].dir, jobs[j].agent).digest;
    } catch (const Error&) {  // stopped before its first checkpoint
    }
  }
}

class WebTestSet : public JobSet {
 public:
  std::string job_recipe() const override { return kAgentRecipe; }

  PreparedSet prepare(ResolvedRecipe& recipe, const Machine& machine, const fs::path& dir,
                      const Say& say) const override {
    const auto& settings = dynamic_cast<const WebTestSettings&>(*recipe.settings);
    settings.check();
    PreparedSet set;
    set.job_recipe = kAgentRecipe;
    set.strategy = settings.strategy;
    set.max_time = settings.max_time;
    set.devices = parse_devices(settings.devices, machine, 1024);
    std::vector<AgentJob> plans = jobs_of_agents(settings, static_cast<int>(set.devices.size()));
    plans = with_those_there(std::move(plans), dir, say);
    plans = batched(std::move(plans), recipe, dir, batched_runs(settings, set.devices));
    const bool on_gpus = std::ranges::all_of(
        set.devices, [](const DeviceSpec& device) { return device.kind == DeviceSpec::Kind::kCuda; });
    for (const AgentJob& plan : plans) set.jobs.push_back(prepare_job(plan, recipe, dir, on_gpus));
    set.schedule.strategy = settings.strategy == "ddp" ? Strategy::kDdp : Strategy::kAgents;
    for (const Assignment one : {Assignment::kBalanced, Assignment::kSpecialized, Assignment::kHierarchical})
      if (settings.assignment == name_of(one)) set.schedule.assignment = one;
    return set;
  }

  PreparedSet prepare_at(ResolvedRecipe& recipe, const Machine& machine, const SetPlace& place) const override {
    auto& settings = dynamic_cast<WebTestSettings&>(*recipe.settings);
    std::vector<std::string> pins;
    for (const auto& [agent, device] : pins_named(settings.assign, 1024))
      if (std::cmp_less(device, place.count)) pins.push_back(fmt::format("{}={}", agent, device));
    const std::string old_devices = std::exchange(settings.devices, place.devices);
    const std::string old_assign = std::exchange(settings.assign, fmt::format("{}", fmt::join(pins, ",")));
    const std::string old_together =
        std::exchange(settings.together, place.job_by_job ? std::string("off") : settings.together);
    PreparedSet set = prepare(recipe, machine, "", [](const std::string&) {});
    settings.devices = old_devices;
    settings.assign = old_assign;
    settings.together = old_together;
    return set;
  }

  // By greedy episodes, as `tandem eval` does; so the best of an ensemble is chosen by these.
  bool judge(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) const override {
    add_digests(jobs, status);
    bool all = true;
    for (size_t j = 0; j < jobs.size(); ++j) {
      if (status[j].state != JobStatus::State::kDone) {
        all = false;
        continue;
      }
      try {
        const TrainedAgent trained = load_agent(jobs[j].dir, jobs[j].agent);
        const Evaluation greedy = play_net(trained, {.episodes = kJudgedEpisodes});
        status[j].average_return = greedy.mean;
        status[j].score = kWebScale[web_agent_of(jobs[j].agent)].score(greedy.mean);
      } catch (const Error&) {
        all = false;
      }
    }
    return all;
  }

  std::string score_words(bool judged) const override {
    return judged ? fmt::format("score: 0 random play, 1 the solver; of {} greedy episodes", kJudgedEpisodes)
                  : "score: 0 random play, 1 the solver; of the last episodes of training, some decisions still at "
                    "random";
  }

  // At the start its part of the GPU, at the end kJudgedEpisodes. By the 21 to 22 s that six took on an H200, of which
  // 7 were training (docs/results.md).
  double seconds_beside_steps() const override { return .9; }
};

}  // namespace

std::shared_ptr<const JobSet> web_test_set() { return std::make_shared<WebTestSet>(); }

}  // namespace tandem
