// tools/plan/plan_measure.cc -- the calibration of `tandem plan`: which trials are needed, and what earlier ones found.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "command/scratch.h"
#include "command/start.h"
#include "command/trial_run.h"
#include "config/units.h"
#include "forecast/grid.h"
#include "hardware/machine.h"
#include "jobs/estimate.h"
#include "telemetry/atomic_file.h"
#include "telemetry/run_summary.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kStartGuess = 2.5, kShortest = 1.5, kLongest = 12;

struct Wanted {
  std::vector<DeviceSpec> devices;
  int64_t batch;
  std::string precision;
  double weight;      // of the time
  bool main = false;  // without it there is no forecast
};

TrialDevice trial_device(const DeviceSpec& spec) { return {Estimate::model_of(spec), spec.speed, spec.core}; }

bool is(const Trial& trial, const Wanted& wanted) {
  if (trial.batch != wanted.batch || trial.precision != wanted.precision) return false;
  return std::ranges::equal(trial.devices, wanted.devices,
                            [](const TrialDevice& a, const DeviceSpec& b) { return a == trial_device(b); });
}

std::vector<Wanted> wanted_trials(const MeasureRequest& request, int cores) {
  std::vector<Wanted> all;
  std::vector<DeviceSpec> each;  // the first of each model: a slowed worker is the fast one, slowed
  for (const DeviceSpec& spec : request.devices)
    if (std::ranges::none_of(each,
                             [&](const DeviceSpec& e) { return Estimate::model_of(e) == Estimate::model_of(spec); }))
      each.push_back(spec);
  const std::vector<GridCell> grid =
      calibration_grid({.most = std::min(request.most, static_cast<int>(request.devices.size())),
                        .batches = request.batches,
                        .seconds = request.budget_s / static_cast<double>(request.precisions.size()),
                        .start_seconds = kStartGuess,
                        .cores = cores});
  for (const std::string& precision : request.precisions) {
    const bool first = precision == request.precisions.front();
    for (const GridCell& cell : grid)
      all.push_back({{request.devices.begin(), request.devices.begin() + cell.workers},
                     cell.batch,
                     precision,
                     cell.weight,
                     first && &cell == &grid.front()});
    for (size_t model = 1; model < each.size(); ++model)
      all.push_back({{each[model]}, request.batches.front(), precision, 1});
  }
  return all;
}

double load_now() {
  double load[1] = {0};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

// Another program is another speed.
std::string program_and_machine(const CliContext& context) {
  std::error_code none;
  const auto built = fs::last_write_time(context.worker, none).time_since_epoch().count();
  return fmt::format("{} {}", machine_name(context), none ? 0 : built);
}

std::string processor() { return machine_facts().cpu.model.value_or("unknown processor"); }

// What decides how large a job is and how many steps it has.
std::string shape_key(const CliContext& context, const std::string& recipe, const Resolver& resolver) {
  Json values = resolver.result_values();
  values.erase("seed");
  const Json all = resolver.to_json();
  for (const char* key : {"steps", "epochs", "episodes", "iterations"})
    if (all.contains(key)) values[key] = all[key];
  return calibration_key(program_and_machine(context), recipe, values.dump()) + "-shape";
}

}  // namespace

CheckpointRule checkpoint_rule(const RecipeSettings& settings) {
  const Interval every = parse_interval(settings.checkpoint.every).value_or(Interval{});
  return {.automatic = every.automatic, .seconds = every.seconds, .steps = every.steps};
}

std::vector<TrialDevice> trial_devices(const std::vector<DeviceSpec>& specs) {
  std::vector<TrialDevice> devices;
  for (const DeviceSpec& spec : specs) devices.push_back(trial_device(spec));
  return devices;
}

ForecastDevice forecast_device(const DeviceSpec& spec) { return {Estimate::model_of(spec), spec.speed, spec.core}; }

std::string machine_name(const CliContext& context) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("{}, {}, {} cores, tandem {}", host, processor(), context.machine.cpu_cores, context.version);
}

std::string key_of(const CliContext& context, const std::string& recipe, const Resolver& resolver) {
  Json values = resolver.result_values();
  // These are a trial's own, or change no step's time.
  for (const char* key : {"batch_size", "precision", "seed", "steps", "capacity", "learning_starts",
                          "schedule.total_steps", "optimizer.learning_rate", "data_seed"})
    values.erase(key);
  const Json all = resolver.to_json();
  for (const char* key : {"loader.threads", "loader.prefetch"}) values[key] = all.at(key);  // no result, but time
  return calibration_key(program_and_machine(context), recipe, values.dump());
}

namespace {

// Runs the missing trials within the budget; each is kept in the cache at once. Says whether that could be written.
bool run_missing(const Command& command, const MeasureRequest& request, const std::vector<Wanted>& missing,
                 const std::string& key, Calibration& known) {
  const int cores = command.context.machine.cpu_cores;
  const double began = monotonic_seconds();
  bool kept = true;
  double around = kStartGuess;  // what a trial of one worker takes beside its training
  double weights = 0;
  for (const Wanted& one : missing) weights += one.weight;
  const Scratch scratch("plan");
  const fs::path file = scratch.path() / "recipe.toml";
  write_file_atomically(file, request.resolver->to_toml(request.recipe), Durability::kProcessDeath);
  for (size_t i = 0; i < missing.size(); ++i) {
    const Wanted& now = missing[i];
    double training = request.budget_s - (monotonic_seconds() - began);
    for (size_t later = i; later < missing.size(); ++later)
      training -= start_guess(static_cast<int>(missing[later].devices.size()), around, cores);
    const double seconds = std::clamp(training * now.weight / weights, kShortest, kLongest);
    weights -= now.weight;
    const std::string devices = devices_named(now.devices);
    command.output.say(fmt::format("measuring {} of {}: {} on {}, batch {}, {}, {:.0f} s", i + 1, missing.size(),
                                   request.title, devices, now.batch, now.precision, seconds));
    command.output.flush();
    try {
      Trial trial = run_trial(command, {.recipe = file.string(),
                                        .flags = false,
                                        .devices = devices,
                                        .batch = now.batch,
                                        .precision = now.precision,
                                        .seconds = seconds});
      around = std::max(around, (trial.start_seconds + trial.end_seconds) /
                                    start_guess(static_cast<int>(trial.devices.size()), 1, cores));
      std::erase_if(known.trials, [&](const Trial& old) { return is(old, now); });
      known.trials.push_back(std::move(trial));
      kept = keep_calibration(forecast_cache(), key, known);  // now: a plan that is stopped need not measure it again
    } catch (const Error& error) {
      // Another batch or precision may not go together with the recipe, or not fit: then there is no line for it.
      if (now.main) throw;
      command.output.warn(fmt::format("{} with batch {} in {} is left out: {} ({})", devices, now.batch, now.precision,
                                      error.what(), error.why()));
    }
  }
  return kept;
}

}  // namespace

Calibration measure(const Command& command, const MeasureRequest& request) {
  const fs::path cache = forecast_cache();
  const std::string key = key_of(command.context, request.recipe, *request.resolver);
  Calibration known{.recipe = request.recipe,
                    .machine = machine_name(command.context),
                    .made = utc_stamp(),
                    .cores = command.context.machine.cpu_cores,
                    .load = load_now(),
                    .trials = {}};
  if (auto earlier = load_calibration(cache, key)) known = std::move(*earlier);
  const std::vector<Wanted> wanted = wanted_trials(request, command.context.machine.cpu_cores);
  std::vector<Wanted> missing;
  for (const Wanted& one : wanted)
    if (request.anew || std::ranges::none_of(known.trials, [&](const Trial& trial) { return is(trial, one); }))
      missing.push_back(one);
  if (!missing.empty()) {
    check_worker_program(command.context);
    known.made = utc_stamp();
    known.load = load_now();
    if (!run_missing(command, request, missing, key, known))
      command.output.warn(
          fmt::format("{} cannot be written: the next plan has to measure again",
                      cache.empty() ? "no HOME and no XDG_CACHE_HOME: what was measured" : cache.string()));
  }
  std::erase_if(known.trials, [&](const Trial& trial) {  // the file keeps them: of other devices
    return std::ranges::none_of(wanted, [&](const Wanted& one) { return is(trial, one); });
  });
  return known;
}

std::optional<JobShape> known_shape(const CliContext& context, const std::string& recipe, const Resolver& resolver) {
  const auto earlier = load_calibration(forecast_cache(), shape_key(context, recipe, resolver));
  return earlier ? std::optional(earlier->trials.front().shape) : std::nullopt;
}

JobShape shape_of_job(const Command& command, const std::string& recipe, const Resolver& resolver) {
  const fs::path cache = forecast_cache();
  const std::string key = shape_key(command.context, recipe, resolver);
  if (const auto earlier = load_calibration(cache, key)) return earlier->trials.front().shape;
  check_worker_program(command.context);
  const JobShape shape = describe_job(command, recipe, resolver);
  Trial trial;
  trial.devices = {{}};
  trial.shape = shape;
  keep_calibration(cache, key,
                   {.recipe = recipe, .machine = "", .made = utc_stamp(), .cores = 1, .load = 0, .trials = {trial}});
  return shape;
}

std::optional<RunForecast> forecast_of_run(const Command& command, const ResolvedRecipe& recipe,
                                           const std::vector<DeviceSpec>& devices) {
  try {
    const fs::path cache = forecast_cache();
    const auto known = load_calibration(cache, key_of(command.context, recipe.name, *recipe.resolver));
    const auto shape = load_calibration(cache, shape_key(command.context, recipe.name, *recipe.resolver));
    if (!known) return std::nullopt;
    const RecipeSettings& settings = *recipe.settings;
    std::vector<ForecastDevice> there;
    for (const DeviceSpec& spec : devices) there.push_back(forecast_device(spec));
    const Calibration trials = trials_for(*known, trial_devices(devices));
    const StepModel steps(trials, settings.precision);
    if (std::ranges::any_of(there, [&](const ForecastDevice& d) { return !steps.knows(d.model); })) return std::nullopt;
    const int64_t batch = settings.shards_from_devices ? settings.batch_size / settings.shards : settings.batch_size;
    const StepForecast step = steps.step(batch, there);
    const int workers = static_cast<int>(devices.size());
    const JobShape job = shape ? shape->trials.front().shape : JobShape{};
    const RunTimes times = run_times(steps, step, job, workers, checkpoint_rule(settings),
                                     busy_cores(there, command.context.machine.cpu_cores));
    RunForecast forecast{.start_seconds = times.start, .step_seconds = step.seconds, .end_seconds = times.end};
    // Snapshots come by time: a run that ends sooner has fewer.
    if (job.total_steps > 0) forecast.step_seconds += times.pauses.seconds() / static_cast<double>(job.total_steps);
    if (shape) {
      const MemoryModel memory(trials, settings.precision, devices[0].kind == DeviceSpec::Kind::kCuda);
      forecast.memory_bytes =
          memory.most(job, batch, step.shards, snapshot_seconds(times.pauses, times.seconds())).total();
    }
    return forecast;
  } catch (const Error&) {  // a forecast is never worth a run
    return std::nullopt;
  }
}

void note_outcome(const fs::path& run_dir, const std::string& recipe) {
  const Json run = read_run_json(run_dir);
  if (!run.contains("extra") || !run["extra"].is_object() || !run["extra"].contains("forecast_seconds")) return;
  const Json& extra = run["extra"];
  if (run.value("status", std::string()) != "done" || extra.value("deaths", 0) > 0) return;  // another story
  keep_outcome(forecast_cache(), {.run = run.value("id", std::string()),
                                  .recipe = recipe,
                                  .made = utc_stamp(),
                                  .workers = extra.value("workers", 0),
                                  .forecast_seconds = extra.value("forecast_seconds", 0.0),
                                  .took_seconds = extra.value("took_seconds", 0.0),
                                  .forecast_memory = extra.value("forecast_memory_bytes", 0.0),
                                  .memory = extra.value("memory_bytes", 0.0)});
}

}  // namespace tandem
