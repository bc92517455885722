// tools/plan/plan.h -- `tandem plan`: between its files, and what `train` asks of it before a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command/command.h"
#include "command/sources.h"
#include "config/devices.h"
#include "forecast/calibration.h"
#include "forecast/outcomes.h"
#include "forecast/rows.h"
#include "launch/launcher.h"

namespace tandem {

struct GpuModel;
class JobSet;
struct PreparedSet;
struct SetKnown;

int run_plan(const Command& command);

// ---- measuring (plan_measure.cc) ----

inline constexpr double kOfBudget = .92;  // the rest is for what takes longer than it was thought to

struct MeasureRequest {
  std::string recipe, title;        // its name; how messages name it
  const Resolver* resolver;         // settings as they are
  std::vector<DeviceSpec> devices;  // at hand
  std::vector<int64_t> batches;     // the first is the main one
  std::vector<std::string> precisions;
  int most = 2;  // of the devices together
  double budget_s = 55;
  bool anew = false;
};

// What is not yet in the cache is measured and put there.
Calibration measure(const Command& command, const MeasureRequest& request);
// Where it lies: machine, recipe and those settings that change a step's time.
std::string key_of(const CliContext& context, const std::string& recipe, const Resolver& resolver);
// The shape of the job, from the cache where it was asked before.
JobShape shape_of_job(const Command& command, const std::string& recipe, const Resolver& resolver);
std::optional<JobShape> known_shape(const CliContext& context, const std::string& recipe, const Resolver& resolver);
std::string machine_name(const CliContext& context);

CheckpointRule checkpoint_rule(const RecipeSettings& settings);
ForecastDevice forecast_device(const DeviceSpec& spec);
std::vector<TrialDevice> trial_devices(const std::vector<DeviceSpec>& specs);

// ---- the whole answer ----

struct AgentForecast {  // of a set
  std::string name;
  double seconds_alone = 0;
  int64_t steps = 0;
};

struct SetRow {  // of a set: all its models on n devices
  std::vector<std::string> names;
  double seconds = 0, ideal_seconds = 0, speedup = 1;
  double memory_bytes = 0;  // of the worker that needs most
  double watts = 0, kwh = 0, cost = 0;
  std::optional<double> cloud_cost;
  std::string cloud;
  std::optional<double> guide;
  double error = 0;
  int jobs = 0, agents = 0;  // fewer jobs than agents: several train together, side by side in one run
  std::string words;         // "6 jobs", "6 agents side by side in 1 job"
  int offered = 0;           // devices of which these were chosen
  std::string choice;        // "2 agents on RTX 3060 Ti, 4 on RTX 3070"; empty: not chosen by forecast
  std::string next_choice;   // the runner-up
  double next_seconds = 0;
  bool exact = true;  // no other choice ends sooner
  double gap = 0;     // where it is not exact: at most so far above the least possible, as a share
};

struct PlanReport {
  std::string recipe;
  bool here = true;                   // on the devices at hand
  std::string hardware, scaled_from;  // "8 x H100 SXM"; what it was scaled from
  std::string trains = "";            // why these GPUs do not train yet; empty: they do
  std::vector<std::string> precisions;
  std::vector<PlanDevice> devices;
  JobShape job;
  int64_t shards = 1, batch = 0;
  std::vector<PlanRow> rows;
  std::vector<AgentForecast> agents;  // of a set
  std::vector<SetRow> set_rows;
  std::string strategy, set_words;  // of a set; words: on all devices
  const SetRow* best_set() const;   // the fastest; fewer devices where more bring less than 2 %
  PowerForecast power;
  RunningCost running;
  std::optional<double> buy_price;  // of all devices
  std::string buy_source;
  std::optional<CloudPrice> rent;  // of all devices, an hour
  std::optional<double> break_even_h;
  Prices prices;
  Calibration calibration;
  std::vector<ForecastOutcome> outcomes;
  std::string command;  // to copy
  std::vector<std::string> notes;
};

// ---- between plan.cc and plan_set.cc ----
std::vector<PlanDevice> devices_here(const std::vector<DeviceSpec>& specs);
std::vector<const GpuModel*> gpus_of(const std::vector<PlanDevice>& devices);
// Those of the devices used, a GPU that several of them share once; empty where one is in no book.
std::vector<const GpuModel*> gpus_used(const std::vector<PlanDevice>& devices, const std::vector<const GpuModel*>& gpus,
                                       const std::vector<size_t>& used);
std::optional<CloudPrice> rent_of(const Prices& prices, std::vector<const GpuModel*> gpus);
// What a GPU was seen to draw while it trained; 0 if the driver did not say.
double watts_of_one(const Calibration& calibration);
// What to type for the training that was planned, with the settings that were given for it; a batch of 0 and an empty
// precision are those of the recipe.
std::string command_to_copy(const Command& command, const std::string& devices, int64_t batch,
                            const std::string& precision);
void add_power(PlanReport& report, const std::vector<const GpuModel*>& gpus, double measured_w);
// Of a set of jobs.
void plan_set(const Command& command, const JobSet& kind, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const GpuModel*>& elsewhere);

std::string plan_text(const PlanReport& report);
std::string error_text(double error);              // "+-12 %"; "x7" from a factor of two on
std::string error_line(const PlanReport& report);  // the largest of the column, and what it comes from
nlohmann::json plan_json(const PlanReport& report);
std::string plan_csv(const PlanReport& report);

// The forecast of a run that is about to begin, from what was measured before; nothing where nothing was.
std::optional<RunForecast> forecast_of_run(const Command& command, const ResolvedRecipe& recipe,
                                           const std::vector<DeviceSpec>& devices);
// What is known of a set's steps on the devices of its settings: by trials of `plan` if they are there, else by the
// speeds of earlier runs. `train` chooses by it, as `plan` does.
SetKnown known_of_set(const Command& command, const JobSet& kind, ResolvedRecipe& recipe);
// Of a set: seconds. Nothing unless every agent was measured.
std::optional<double> forecast_of_set(const Command& command, const PreparedSet& set);
// After it: for the next plan's word on how good forecasts are.
void note_outcome(const std::filesystem::path& run_dir, const std::string& recipe);

}  // namespace tandem
