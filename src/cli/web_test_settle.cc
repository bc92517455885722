// cli/web_test_settle.cc -- what a web-test run will be, before anything of it is begun.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/file_system.h"
#include "cli/start.h"
#include "cli/web_test.h"
#include "jobs/set_display.h"
#include "recipes/web_test_jobs.h"
#include "runs/agent_runs.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgentRecipe = "web-agent";

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
std::vector<AgentJob> with_those_there(std::vector<AgentJob> plans, const fs::path& dir, const Output& output) {
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
      output.say(fmt::format("{} go on together: they are one run", fmt::join(there.agents, ", ")));
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
  one.settings = std::make_unique<WebAgentSettings>();
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
  one.job.flops = flops_of_step(*one.settings, on_gpus);
  if (plan.agents.size() == 1) {
    one.job.agent = plan.agents.front();
    one.job.rule_score = rule_score(one.job.agent);
    return one;
  }
  for (const std::string& agent : plan.agents)
    one.job.members.push_back({plan.member_name(agent), agent, rule_score(agent)});
  return one;
}

std::vector<PlannedJob> planned(const PreparedSet& set, const Estimate& estimate) {
  std::vector<PlannedJob> jobs;
  for (size_t j = 0; j < set.jobs.size(); ++j) {
    const SetJob& job = set.jobs[j].job;
    JobStatus status;
    if (!set.jobs[j].is_new) read_job(job, status);
    const auto left = static_cast<double>(std::max<int64_t>(0, job.steps - status.step));
    jobs.push_back({.work = left * estimate.step_seconds(static_cast<int>(j)),
                    .shards = job.shards,
                    .pin = job.pin,
                    .done = left == 0,
                    .devices = {}});
  }
  return jobs;
}

}  // namespace

std::vector<SetJob> PreparedSet::plain() const {
  std::vector<SetJob> plain;
  for (const PreparedJob& one : jobs) plain.push_back(one.job);
  return plain;
}

std::string PreparedSet::words() const {
  const size_t rows = rows_of(plain(), std::vector<JobStatus>(jobs.size())).jobs.size();
  const std::string count = fmt::format("{} job{}", jobs.size(), jobs.size() == 1 ? "" : "s");
  return rows == jobs.size() ? count : fmt::format("{} agents side by side in {}", rows, count);
}

PreparedSet prepare_web_test(const Command& command, ResolvedRecipe& recipe, const fs::path& dir) {
  if (command.ranks)
    throw ConfigError("web-test can't be started by another launcher", "its agents are runs of one machine",
                      "start it once, without torchrun, mpirun or srun; or train one agent with web-agent");
  PreparedSet set;
  set.settings = dynamic_cast<WebTestSettings*>(recipe.settings.get());
  set.settings->check();
  set.devices = parse_devices(set.settings->devices, command.context.machine, 1024);
  std::vector<AgentJob> plans = jobs_of_agents(*set.settings, static_cast<int>(set.devices.size()));
  plans = with_those_there(std::move(plans), dir, command.output);
  plans = batched(std::move(plans), recipe, dir, runs_together(*set.settings, set.devices));
  const bool on_gpus =
      std::ranges::all_of(set.devices, [](const DeviceSpec& device) { return device.kind == DeviceSpec::Kind::kCuda; });
  for (const AgentJob& plan : plans) set.jobs.push_back(prepare_job(plan, recipe, dir, on_gpus));
  set.schedule.strategy = set.settings->strategy == "ddp" ? Strategy::kDdp : Strategy::kAgents;
  for (const Assignment one : {Assignment::kBalanced, Assignment::kSpecialized, Assignment::kHierarchical})
    if (set.settings->assignment == name_of(one)) set.schedule.assignment = one;
  return set;
}

Estimate estimate_of(PreparedSet& set, const fs::path& speeds_file) {
  const auto speeds = nlohmann::json::parse(read_small_file(speeds_file, 1 << 20).value_or(""), nullptr, false);
  const nlohmann::json costs = speeds.is_object() && speeds.contains(kCostsKey) ? speeds[kCostsKey] : nlohmann::json();
  const auto take = [&](const char* key, double& value, double most) {
    if (costs.is_object() && costs.contains(key) && costs[key].is_number())
      value = std::clamp(costs[key].get<double>(), 0.0, most);
  };
  take("start_seconds", set.schedule.start_seconds, 600);
  take("join_seconds", set.schedule.join_seconds, 600);
  take("hold_seconds", set.schedule.hold_seconds, 600);
  take("combine_share", set.schedule.combine_share, 0.9);
  Estimate estimate(set.devices, set.plain(), set.schedule.combine_share);
  if (speeds.is_object())
    for (const auto& [model, value] : speeds.items())
      if (value.is_number()) estimate.assume(model, value.get<double>());
  return estimate;
}

void show_web_test(const Command& command, const ResolvedRecipe& recipe, const PreparedSet& set,
                   const Estimate& estimate) {
  const std::vector<PlannedJob> jobs = planned(set, estimate);
  const std::vector<double> speeds = estimate.speeds();
  const Forecast course = forecast(jobs, speeds, set.schedule);
  const std::string assignment(name_of(set.schedule.assignment));
  if (command.output.json()) {
    nlohmann::json agents = nlohmann::json::array(), devices = nlohmann::json::array(), plan = nlohmann::json::array();
    for (size_t j = 0; j < jobs.size(); ++j)
      agents.push_back({{"name", set.jobs[j].job.name},
                        {"agent", set.jobs[j].settings->agent},
                        {"steps", set.jobs[j].job.steps},
                        {"shards", set.jobs[j].job.shards},
                        {"seconds_alone", jobs[j].work},
                        {"values", set.jobs[j].resolver->to_json()}});
    for (size_t d = 0; d < speeds.size(); ++d)
      devices.push_back({{"device", set.devices[d].name()}, {"speed", speeds[d]}});
    for (const Segment& part : course.course)
      plan.push_back({{"device", set.devices[static_cast<size_t>(part.device)].name()},
                      {"job", set.jobs[static_cast<size_t>(part.job)].job.name},
                      {"begin", part.begin},
                      {"end", part.end}});
    command.output.object({{"dry_run", true},
                           {"recipe", recipe.name},
                           {"values", recipe.resolver->to_json()},
                           {"strategy", set.settings->strategy},
                           {"assignment", assignment},
                           {"jobs", agents},
                           {"devices", devices},
                           {"plan", plan},
                           {"forecast_seconds", course.seconds},
                           {"ideal_seconds", ideal_seconds(jobs, speeds)}});
    return;
  }
  command.output.data(recipe.resolver->to_toml(recipe.name));
  command.output.say(fmt::format("{}: {} on {} device{}, strategy {}, assignment {}", recipe.name, set.words(),
                                 speeds.size(), speeds.size() == 1 ? "" : "s", set.settings->strategy, assignment));
  for (size_t j = 0; j < jobs.size(); ++j)
    command.output.say(fmt::format("  {:<26} {:>7} steps  {} shards  about {} alone", set.jobs[j].job.name,
                                   set.jobs[j].job.steps, set.jobs[j].job.shards, duration_words(jobs[j].work)));
  for (size_t d = 0; d < speeds.size(); ++d) {
    std::vector<std::string> parts;
    for (const Segment& part : course.course)
      if (part.device == static_cast<int>(d))
        parts.push_back(
            fmt::format("{} {:.0f}-{:.0f} s", set.jobs[static_cast<size_t>(part.job)].job.name, part.begin, part.end));
    command.output.say(
        fmt::format("  {:<8} speed {:.2f}: {}", set.devices[d].name(), speeds[d], fmt::join(parts, ", ")));
  }
  command.output.say(fmt::format("forecast {} (nothing can be below {})", duration_words(course.seconds),
                                 duration_words(ideal_seconds(jobs, speeds))));
  command.output.say("dry run: nothing was started");
}

void write_jobs(const PreparedSet& set) {
  for (const PreparedJob& one : set.jobs) {
    const RunFolder run = one.is_new ? RunFolder::create("", kAgentRecipe, one.job.dir) : RunFolder::open(one.job.dir);
    run.write_recipe(one.resolver->to_toml(kAgentRecipe));
  }
}

}  // namespace tandem
