// jobs/job_set.h -- a recipe that is a set of jobs, each a run of another recipe, or of its own with other settings:
// what its entry brings, and what is known of such a set before anything of it runs.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/devices.h"
#include "config/recipe_list.h"
#include "config/resolved_recipe.h"
#include "jobs/estimate.h"
#include "jobs/job.h"
#include "jobs/schedule.h"
#include "jobs/set_plan.h"

namespace tandem {

struct SetOutcome;

struct PreparedJob {
  SetJob job;
  std::unique_ptr<RecipeSettings> settings;
  std::unique_ptr<Resolver> resolver;  // refers to *settings
  bool is_new = true;                  // its folder is still to be made
  double save_seconds = 0;             // on GPUs, which are taken until it has saved; a core goes on with another job
};

// What was measured before of the steps of a set. What is not known is taken from the GPUs' data sheets.
struct SetKnown {
  std::map<std::string, double> speeds;  // by device model: arithmetic a second, of earlier runs (speeds.json)
  // By device model, by agent: of one alone, by the trials of `plan`; goes before speeds.
  std::map<std::string, std::map<std::string, RunCost>> steps;
  double start_seconds = 0;  // of a run; 0: not known
  struct Memory {
    double total = 0, free = 0;  // bytes; 0: not known
  };
  std::map<std::string, Memory> memory;  // by the GPU's UUID: what the driver says; else its data sheet counts
};

// Which agents share a run and which GPU trains it (jobs/set_plan.h), where that was decided.
struct ChosenPlan {
  SetQuestion question;               // its devices are all that were offered
  SetChoice choice;                   // runs of the best are in the order of the set's jobs
  SetPlan one_gpu;                    // the best that one of the GPUs does alone; no runs: pins need several
  std::vector<std::string> left_out;  // devices that would not make it faster
  std::string by;                     // what the forecast was made with: "the GPUs' data sheets"
  bool by_trials = false;             // all agents were measured by `plan` on all GPUs
  std::string memory;                 // what memory decided: "at most 3 agents share a run on cuda:0 (...)"; or empty
};

struct PreparedSet {
  std::string job_recipe;           // that its jobs are runs of
  std::string strategy, max_time;   // of the set's settings
  std::vector<DeviceSpec> devices;  // that are used
  std::vector<PreparedJob> jobs;
  ScheduleOptions schedule;
  std::optional<ChosenPlan> chosen;
  std::map<std::string, double> assumed;  // by device model: arithmetic a second, until it is measured
  double seconds_beside = 0;              // of the forecast, on no device: what comes after the last run
  std::vector<SetJob> plain() const;
  std::vector<double> save_seconds() const;  // by job
  std::string words() const;                 // "6 jobs", "6 agents side by side in 1 job"
  // Which bits each agent is promised: "each agent: those of a run of its own on NVIDIA H200"; lines for people.
  std::vector<std::string> bits() const;
  // What was chosen, the runner-up, one GPU alone and who is left out: lines for people. None without a choice.
  std::vector<std::string> choice_lines() const;
};

// Devices that a set is prepared for instead of those of its settings. Pins to others are none.
struct SetPlace {
  std::string devices;  // as --devices takes them
  size_t count = 0;
  bool job_by_job = false;  // no two models share a run
  size_t most_devices = 0;  // that may be used; 0: all
  SetKnown known = {};
};

class JobSet {
 public:
  virtual ~JobSet() = default;
  virtual std::string job_recipe() const = 0;
  // Whether these settings ask for several runs; else the recipe is one run like others.
  virtual bool asked_for(const RecipeSettings& /*settings*/) const { return true; }

  // Everything that can be refused is refused here. `dir` is the set's folder: jobs that have a run in it go on with
  // theirs; empty: there is none yet. Runs are planned by what is `known`. `say` takes lines for the user. Throws
  // ConfigError.
  using Say = std::function<void(const std::string&)>;
  virtual PreparedSet prepare(ResolvedRecipe& recipe, const Machine& machine, const std::filesystem::path& dir,
                              const SetKnown& known, const Say& say) const = 0;
  // With some settings as they would be there; afterwards they are as they were.
  virtual PreparedSet prepare_at(ResolvedRecipe& recipe, const Machine& machine, const SetPlace& place) const = 0;

  // Digests of models that share a run, and figures of those that are done by the recipe's own measure, row by row
  // (rows_of). False where one could not be judged: it keeps the figures of its training.
  virtual bool judge(const std::vector<SetJob>& jobs, std::vector<JobStatus>& status) const = 0;
  virtual std::string score_words(bool judged) const = 0;    // what a score means, for the line below the table
  virtual double seconds_beside_steps() const { return 0; }  // of one model on a GPU, at its start and its end
  // To copy at its end: commands about the set `run`, and about the model `agent` of it.
  virtual std::vector<CommandExample> next_commands(const std::string& run, const std::string& agent) const = 0;
};

// The set that these settings of a recipe ask for; null: one run.
const JobSet* set_of(const RecipeInfo& recipe, const RecipeSettings& settings);

// What all sets do alike when they prepare: the job's place, which the set decides at every start, its frozen settings
// and its size. `manifest`: settings of its newest checkpoint, which must be compatible; null: there is none. Throws
// ConfigError.
void settle_job(PreparedJob& one, const std::string& set, const nlohmann::json* manifest);
// Numbers the kinds of the set's devices for its schedule.
void number_kinds(PreparedSet& set);

// "analysis"; "requirements,generation" of those that share a run.
std::string models_of(const SetJob& job);

// What is left of each job, its save included, on a device of speed 1.
std::vector<PlannedJob> planned(const PreparedSet& set, const Estimate& estimate);

// What earlier runs of this machine were measured to do: speeds.json of the folder of all runs.
SetKnown known_speeds(const std::filesystem::path& speeds_file);
// With that, also in the set's own schedule.
Estimate estimate_of(PreparedSet& set, const std::filesystem::path& speeds_file);
// What the devices were measured to do, for the first forecast of the next run. A loss of it costs nothing.
void keep_speeds(const std::filesystem::path& speeds_file, const SetOutcome& outcome);

// The folders and recipes of the jobs, which are pinned from now on: edits of a job's recipe.toml reach it no more.
void write_jobs(PreparedSet& set);
// Of a set that is gone on with: jobs that have no checkpoint yet get back the recipe that the set began with. Edits
// are put aside (runs/recipe_file.h) and reported through `warn`. For whoever holds the set's lock.
void keep_recipes_begun(const std::filesystem::path& set_dir, const JobSet::Say& warn);

}  // namespace tandem
