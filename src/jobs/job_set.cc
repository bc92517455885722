#include "jobs/job_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "jobs/runner.h"
#include "runs/run_folder.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCostsKey = "costs";  // what starts and joins cost, beside the devices' speeds

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

std::string models_of(const SetJob& job) {
  if (job.members.empty()) return job.agent;
  std::vector<std::string> agents;
  for (const SetJob::Member& member : job.members) agents.push_back(member.agent);
  return fmt::format("{}", fmt::join(agents, ","));
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

void keep_speeds(const fs::path& speeds_file, const SetOutcome& outcome) {
  if (outcome.models.empty()) return;
  auto speeds = nlohmann::json::parse(read_small_file(speeds_file, 1 << 20).value_or(""), nullptr, false);
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

void write_jobs(const PreparedSet& set) {
  for (const PreparedJob& one : set.jobs) {
    const RunFolder run =
        one.is_new ? RunFolder::create("", set.job_recipe, one.job.dir) : RunFolder::open(one.job.dir);
    run.write_recipe(one.resolver->to_toml(set.job_recipe));
  }
}

}  // namespace tandem
