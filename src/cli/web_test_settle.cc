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
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgentRecipe = "web-agent";

// An agent's settings: the set's, those for it alone, and what its place in an ensemble adds. A run that is there
// already keeps its own, and takes what was given now.
PreparedJob prepare_job(const AgentJob& plan, const ResolvedRecipe& whole, const fs::path& dir) {
  PreparedJob one;
  one.job.name = plan.name;
  one.job.agent = plan.agent;
  one.job.dir = dir / "agents" / plan.name;
  one.job.pin = plan.pin;
  one.settings = std::make_unique<WebAgentSettings>();
  one.resolver = std::make_unique<Resolver>(*one.settings);
  const fs::path recipe_toml = one.job.dir / "recipe.toml";
  std::error_code none;
  one.is_new = !fs::exists(recipe_toml, none);
  if (one.is_new) {
    one.resolver->take(*whole.resolver, plan.agent);
    one.resolver->set("agent", plan.agent, "web-test");
    for (const auto& [key, value] : plan.own) one.resolver->set(key, value, "--strategy ensemble");
  } else {
    const FileBytes text = read_whole_file(FileSystem::real(), recipe_toml, 1 << 20);
    one.resolver->apply_toml(text.text(), recipe_toml.string());
    one.resolver->take(*whole.resolver, plan.agent, 2);
  }
  one.resolver->set("devices", "", "web-test");  // the set says where and how long, at every start
  one.resolver->set("max_time", "", "web-test");
  freeze(*one.resolver, *one.settings, 1);
  if (!one.is_new)
    if (const auto manifest = newest_manifest(one.job.dir / "checkpoints"))
      check_compatible(manifest->settings, one.resolver->result_values(), plan.name);
  one.job.steps = one.settings->steps;
  one.job.shards = static_cast<int>(one.settings->shards);
  one.job.flops = flops_of_step(*one.settings);
  one.job.rule_score = rule_score(plan.agent);
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

PreparedSet prepare_web_test(const Command& command, ResolvedRecipe& recipe, const fs::path& dir) {
  if (command.ranks)
    throw ConfigError("web-test can't be started by another launcher", "its agents are runs of one machine",
                      "start it once, without torchrun, mpirun or srun; or train one agent with web-agent");
  PreparedSet set;
  set.settings = dynamic_cast<WebTestSettings*>(recipe.settings.get());
  set.settings->check();
  set.devices = parse_devices(set.settings->devices, command.context.machine, 1024);
  for (const AgentJob& plan : jobs_of_agents(*set.settings, static_cast<int>(set.devices.size())))
    set.jobs.push_back(prepare_job(plan, recipe, dir));
  set.schedule.strategy = set.settings->strategy == "ddp" ? Strategy::kDdp : Strategy::kAgents;
  for (const Assignment one : {Assignment::kBalanced, Assignment::kSpecialized, Assignment::kHierarchical})
    if (set.settings->assignment == name_of(one)) set.schedule.assignment = one;
  set.assignment_chosen = set.settings->assignment == "auto";
  return set;
}

Estimate estimate_of(PreparedSet& set, const fs::path& speeds_file) {
  Estimate estimate(set.devices, set.plain(), set.schedule.combine_share);
  const auto speeds = nlohmann::json::parse(read_small_file(speeds_file, 1 << 20).value_or(""), nullptr, false);
  if (speeds.is_object())
    for (const auto& [model, value] : speeds.items())
      if (value.is_number()) estimate.assume(model, value.get<double>());
  if (set.assignment_chosen)
    set.schedule.assignment = best_assignment(planned(set, estimate), estimate.speeds(), set.schedule);
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
                        {"agent", set.jobs[j].job.agent},
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
  command.output.say(fmt::format("{}: {} jobs on {} device{}, strategy {}, assignment {}{}", recipe.name, jobs.size(),
                                 speeds.size(), speeds.size() == 1 ? "" : "s", set.settings->strategy, assignment,
                                 set.assignment_chosen ? " (chosen: it ends first)" : ""));
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
