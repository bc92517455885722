#include "jobs/job_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "jobs/runner.h"
#include "jobs/set_display.h"
#include "runs/recipe_file.h"
#include "runs/run_folder.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipeBegun = "recipe.begun.toml";
constexpr const char* kCostsKey = "costs";  // what starts and joins cost, beside the devices' speeds

nlohmann::json read_speeds(const fs::path& speeds_file) {
  return nlohmann::json::parse(read_small_file(speeds_file, 1 << 20).value_or(""), nullptr, false);
}

// Models of the devices that a job may run on before or while others join it: of its own kind where it is pinned.
std::set<std::string> models_for(const PreparedSet& set, const SetJob& job) {
  std::set<std::string> models;
  const bool ddp = set.schedule.strategy == Strategy::kDdp;
  for (size_t d = 0; d < set.devices.size(); ++d)
    if (ddp || job.pin < 0 || job.pin == static_cast<int>(d)) models.insert(Estimate::model_of(set.devices[d]));
  return models;
}

}  // namespace

std::vector<SetJob> PreparedSet::plain() const {
  std::vector<SetJob> plain;
  for (const PreparedJob& one : jobs) plain.push_back(one.job);
  return plain;
}

std::vector<double> PreparedSet::save_seconds() const {
  std::vector<double> seconds;
  for (const PreparedJob& one : jobs) seconds.push_back(one.save_seconds);
  return seconds;
}

std::string PreparedSet::words() const {
  const size_t rows = rows_of(plain(), std::vector<JobStatus>(jobs.size())).jobs.size();
  const std::string count = fmt::format("{} job{}", jobs.size(), jobs.size() == 1 ? "" : "s");
  return rows == jobs.size() ? count : fmt::format("{} agents side by side in {}", rows, count);
}

std::vector<std::string> PreparedSet::bits() const {
  std::map<std::set<std::string>, std::vector<std::string>> names;  // of jobs, by the models that they may run on
  for (const PreparedJob& one : jobs) names[models_for(*this, one.job)].push_back(one.job.name);
  std::vector<std::string> lines;
  if (names.size() == 1 && names.begin()->first == std::set<std::string>{"cpu"}) return lines;  // cores are all alike
  for (const auto& [models, some] : names) {
    const std::string who = names.size() == 1 ? "each agent" : fmt::format("{}", fmt::join(some, ", "));
    if (models.size() == 1)
      lines.push_back(fmt::format("{}: those of a run of its own on {}", who, *models.begin()));
    else if (schedule.strategy == Strategy::kDdp)
      lines.push_back(fmt::format("{}: as each run says at its start, for unequal devices share it ({})", who,
                                  fmt::join(models, ", ")));
    else
      lines.push_back(fmt::format("{}: those of a run of its own on the device that it begins on ({})", who,
                                  fmt::join(models, ", ")));
  }
  return lines;
}

std::vector<std::string> PreparedSet::choice_lines() const {
  if (!chosen) return {};
  const SetChoice& choice = chosen->choice;
  const std::vector<std::string>& left_out = chosen->left_out;
  const auto about = [&](const SetPlan& plan) {
    return fmt::format("{}: about {}", words_of(chosen->question, plan), duration_words(plan.seconds));
  };
  std::vector<std::string> lines = {
      fmt::format("plan    {}, by {}{}", about(choice.best), chosen->by,
                  choice.exact ? ""
                               : fmt::format("; the best that was found, at most {:.0f} % above the least possible",
                                             std::ceil(100 * choice.gap())))};
  if (choice.runner_up) lines.push_back(fmt::format("next    {}", about(*choice.runner_up)));
  if (choice.best.devices().size() > 1 && !chosen->one_gpu.runs.empty())
    lines.push_back(fmt::format("alone   {}", about(chosen->one_gpu)));
  if (!chosen->memory.empty()) lines.push_back(fmt::format("memory  {}", chosen->memory));
  if (!left_out.empty())
    lines.push_back(fmt::format("free    {}: nothing would be faster with {}", fmt::join(left_out, ", "),
                                left_out.size() == 1 ? "it" : "them"));
  return lines;
}

std::string models_of(const SetJob& job) {
  if (job.members.empty()) return job.agent;
  std::vector<std::string> agents;
  for (const SetJob::Member& member : job.members) agents.push_back(member.agent);
  return fmt::format("{}", fmt::join(agents, ","));
}

const JobSet* set_of(const RecipeInfo& recipe, const RecipeSettings& settings) {
  return recipe.set && recipe.set->asked_for(settings) ? recipe.set.get() : nullptr;
}

void settle_job(PreparedJob& one, const std::string& set, const nlohmann::json* manifest) {
  one.resolver->set("devices", "", set);
  one.resolver->set("max_time", "", set);
  freeze(*one.resolver, *one.settings, 1);
  if (manifest) check_compatible(*manifest, one.resolver->result_values(), one.job.name);
  one.job.steps = one.settings->steps;
  one.job.shards = static_cast<int>(one.settings->shards);
}

void number_kinds(PreparedSet& set) {
  std::vector<std::string> models;
  set.schedule.kinds.clear();
  for (const DeviceSpec& device : set.devices) {
    const auto at = std::ranges::find(models, Estimate::model_of(device));
    set.schedule.kinds.push_back(static_cast<int>(at - models.begin()));
    if (at == models.end()) models.push_back(Estimate::model_of(device));
  }
}

std::vector<PlannedJob> planned(const PreparedSet& set, const Estimate& estimate) {
  std::vector<PlannedJob> jobs;
  for (size_t j = 0; j < set.jobs.size(); ++j) {
    const SetJob& job = set.jobs[j].job;
    JobStatus status;
    if (!set.jobs[j].is_new) read_job(job, status);
    const auto left = static_cast<double>(std::max<int64_t>(0, job.steps - status.step));
    const double save = left > 0 ? set.jobs[j].save_seconds : 0;
    jobs.push_back({.work = left * estimate.step_seconds(static_cast<int>(j)) + save,
                    .shards = job.shards,
                    .pin = job.pin,
                    .done = left == 0,
                    .devices = {}});
  }
  return jobs;
}

SetKnown known_speeds(const fs::path& speeds_file) {
  SetKnown known;
  const nlohmann::json speeds = read_speeds(speeds_file);
  if (!speeds.is_object()) return known;
  for (const auto& [model, value] : speeds.items())
    if (value.is_number() && value.get<double>() > 0) known.speeds[model] = value.get<double>();
  const nlohmann::json costs = speeds.contains(kCostsKey) ? speeds[kCostsKey] : nlohmann::json();
  if (costs.is_object() && costs.contains("start_seconds") && costs["start_seconds"].is_number())
    known.start_seconds = std::clamp(costs["start_seconds"].get<double>(), 0.0, 600.0);
  return known;
}

Estimate estimate_of(PreparedSet& set, const fs::path& speeds_file) {
  const nlohmann::json speeds = read_speeds(speeds_file);
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
  for (const auto& [model, value] : set.assumed) estimate.assume(model, value);
  if (speeds.is_object())
    for (const auto& [model, value] : speeds.items())
      if (value.is_number()) estimate.assume(model, value.get<double>());
  return estimate;
}

void keep_speeds(const fs::path& speeds_file, const SetOutcome& outcome) {
  if (outcome.models.empty()) return;
  nlohmann::json speeds = read_speeds(speeds_file);
  if (!speeds.is_object()) speeds = nlohmann::json::object();
  for (const auto& [model, value] : outcome.models) speeds[model] = std::round(value);
  const auto seconds = [](double value) { return std::round(value * 1000) / 1000; };
  speeds[kCostsKey]["start_seconds"] = seconds(outcome.schedule.start_seconds);
  if (outcome.joins > 0) {
    speeds[kCostsKey]["join_seconds"] = seconds(outcome.schedule.join_seconds);
    speeds[kCostsKey]["hold_seconds"] = seconds(outcome.schedule.hold_seconds);
    speeds[kCostsKey]["combine_share"] = seconds(outcome.schedule.combine_share);
  }
  try {
    write_file_atomically(speeds_file, speeds.dump(2) + "\n", Durability::kProcessDeath);
  } catch (const IoError&) {
  }
}

void write_jobs(PreparedSet& set) {
  for (PreparedJob& one : set.jobs) {
    const RunFolder run =
        one.is_new ? RunFolder::create("", set.job_recipe, one.job.dir) : RunFolder::open(one.job.dir);
    one.job.recipe_toml = one.resolver->to_toml(set.job_recipe);
    write_file_atomically(run.dir() / kRecipeBegun, one.job.recipe_toml);
    run.write_recipe(one.job.recipe_toml);
  }
}

void keep_recipes_begun(const fs::path& set_dir, const JobSet::Say& warn) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(set_dir / "agents", none)) {
    const fs::path dir = entry.path();
    const auto begun = read_small_file(dir / kRecipeBegun, 1 << 20);
    SetJob job;
    job.dir = dir;
    if (!begun || saved_step(job) > 0) continue;  // a checkpoint says by itself what may not change
    if (same_but_for_place(read_small_file(dir / "recipe.toml", 1 << 20).value_or(""), *begun)) continue;
    if (const std::string words = put_recipe_right(dir, *begun, "the set"); !words.empty())
      warn(fmt::format("{}: {}", dir.filename().string(), words));
  }
}

}  // namespace tandem
