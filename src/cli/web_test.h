// cli/web_test.h -- `tandem train web-test` and its resume: six agents as a set of jobs (jobs/runner.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/sources.h"
#include "config/devices.h"
#include "jobs/estimate.h"
#include "jobs/job.h"
#include "jobs/schedule.h"
#include "recipes/web_test_settings.h"
#include "runs/run_folder.h"

namespace tandem {

bool is_web_test(const ResolvedRecipe& recipe);

int train_web_test(const Command& command, ResolvedRecipe& recipe);
int resume_web_test(const Command& command, ResolvedRecipe& recipe, const RunFolder& run);

// ---- between the two files of it ----

struct PreparedJob {
  SetJob job;
  std::unique_ptr<WebAgentSettings> settings;
  std::unique_ptr<Resolver> resolver;  // refers to *settings
  bool is_new = true;                  // its folder is still to be made
};

struct PreparedSet {
  WebTestSettings* settings = nullptr;
  std::vector<DeviceSpec> devices;
  std::vector<PreparedJob> jobs;
  ScheduleOptions schedule;
  std::vector<SetJob> plain() const;
  std::string words() const;  // "6 jobs", "6 agents side by side in 1 job"
};

// Everything that can be refused is refused here: agents, pins, devices, and settings of each agent. `dir` is the set's
// folder; agents that have a run in it go on with theirs.
PreparedSet prepare_web_test(const Command& command, ResolvedRecipe& recipe, const std::filesystem::path& dir);
// What starts and joins cost, in speeds.json beside the devices' speeds.
inline constexpr const char* kCostsKey = "costs";
// With what was measured on this machine before, also in the set's own schedule.
Estimate estimate_of(PreparedSet& set, const std::filesystem::path& speeds_file);
void show_web_test(const Command& command, const ResolvedRecipe& recipe, const PreparedSet& set,
                   const Estimate& estimate);
// The folders and recipes of the agents.
void write_jobs(const PreparedSet& set);

}  // namespace tandem
