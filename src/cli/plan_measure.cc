// cli/plan_measure.cc -- the calibration of `tandem plan`: which trials are needed, and what earlier ones told.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/errors.h"
#include "cli/plan.h"
#include "cli/start.h"
#include "cli/trial_run.h"
#include "jobs/estimate.h"
#include "telemetry/atomic_file.h"
#include "telemetry/run_summary.h"

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

bool is(const Trial& trial, const Wanted& wanted) {
  if (trial.batch != wanted.batch || trial.precision != wanted.precision ||
      trial.devices.size() != wanted.devices.size())
    return false;
  for (size_t i = 0; i < trial.devices.size(); ++i) {
    const DeviceSpec& spec = wanted.devices[i];
    if (trial.devices[i].model != Estimate::model_of(spec) || trial.devices[i].speed != spec.speed) return false;
  }
  return true;
}

std::vector<Wanted> wanted_trials(const MeasureRequest& request) {
  std::vector<Wanted> all;
  std::set<std::pair<std::string, double>> models;
  std::vector<DeviceSpec> each;  // the first of each model and speed
  for (const DeviceSpec& spec : request.devices)
    if (models.insert({Estimate::model_of(spec), spec.speed}).second) each.push_back(spec);
  for (const std::string& precision : request.precisions) {
    const bool first = precision == request.precisions.front();
    // A slowed slot is the fast one, slowed: one of each model is enough.
    std::set<std::string> tried;
    for (const DeviceSpec& spec : each)
      if (tried.insert(Estimate::model_of(spec)).second)
        all.push_back({{spec}, request.batches.front(), precision, 2, first});
    for (size_t b = 1; b < request.batches.size(); ++b)
      all.push_back({{each.front()}, request.batches[b], precision, 1});
    if (request.devices.size() > 1 && request.pair)
      all.push_back({{request.devices[0], request.devices[1]}, request.batches.front(), precision, 2});
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

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown processor";
}

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

ForecastDevice forecast_device(const DeviceSpec& spec) { return {Estimate::model_of(spec), spec.speed, spec.core}; }

std::string machine_name(const CliContext& context) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("{}, {}, {} cores, tandem {}", host, processor(), context.machine.cpu_slots, context.version);
}

std::string key_of(const CliContext& context, const std::string& recipe, const Resolver& resolver) {
  Json values = resolver.result_values();
  // These are a trial's own, or change no step's time.
  for (const char* key : {"batch_size", "precision", "seed", "steps", "capacity", "learning_starts",
                          "schedule.total_steps", "optimizer.learning_rate", "data_seed"})
    values.erase(key);
  return calibration_key(program_and_machine(context), recipe, values.dump());
}

Calibration measure(const Command& command, const MeasureRequest& request) {
  const fs::path cache = forecast_cache();
  const std::string key = key_of(command.context, request.recipe, *request.resolver);
  Calibration known{.recipe = request.recipe,
                    .machine = machine_name(command.context),
                    .made = utc_stamp(),
                    .cores = command.context.machine.cpu_slots,
                    .load = load_now(),
                    .trials = {}};
  if (!request.anew)
    if (auto earlier = load_calibration(cache, key)) known = std::move(*earlier);
  std::vector<Wanted> missing;
  double weights = 0;
  for (Wanted& wanted : wanted_trials(request))
    if (std::ranges::none_of(known.trials, [&](const Trial& trial) { return is(trial, wanted); })) {
      weights += wanted.weight;
      missing.push_back(std::move(wanted));
    }
  if (missing.empty()) return known;
  check_worker_program(command.context);
  known.made = utc_stamp();
  known.load = load_now();
  const double began = monotonic_seconds();
  double around = kStartGuess;  // what a trial takes beside its training
  const Scratch scratch("plan");
  const fs::path file = scratch.path() / "recipe.toml";
  write_file_atomically(file, request.resolver->to_toml(request.recipe), Durability::kProcessDeath);
  for (size_t i = 0; i < missing.size(); ++i) {
    const Wanted& wanted = missing[i];
    const double left = request.budget_s - (monotonic_seconds() - began);
    const double training = left - around * static_cast<double>(missing.size() - i);
    const double seconds = std::clamp(training * wanted.weight / weights, kShortest, kLongest);
    weights -= wanted.weight;
    const std::string devices = devices_named(wanted.devices);
    command.output.say(fmt::format("measuring {} of {}: {} on {}, batch {}, {}, {:.0f} s", i + 1, missing.size(),
                                   request.title, devices, wanted.batch, wanted.precision, seconds));
    command.output.flush();
    try {
      known.trials.push_back(run_trial(command, {.recipe = file.string(),
                                                 .flags = false,
                                                 .devices = devices,
                                                 .batch = wanted.batch,
                                                 .precision = wanted.precision,
                                                 .seconds = seconds}));
      around = std::max(around, known.trials.back().start_seconds + known.trials.back().end_seconds);
    } catch (const Error& error) {
      // Another batch or precision may not go together with the recipe, or not fit: then there is no line for it.
      if (wanted.main) throw;
      command.output.warn(fmt::format("{} with batch {} in {} is left out: {} ({})", devices, wanted.batch,
                                      wanted.precision, error.what(), error.why()));
    }
  }
  keep_calibration(cache, key, known);
  return known;
}

JobShape shape_of_job(const Command& command, const std::string& recipe, const Resolver& resolver) {
  const fs::path cache = forecast_cache();
  const std::string key = shape_key(command.context, recipe, resolver);
  if (const auto earlier = load_calibration(cache, key)) return earlier->trials.front().shape;
  check_worker_program(command.context);
  const JobShape shape = describe_job(command, recipe, resolver);
  Trial trial;
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
    const StepModel steps(*known, settings.precision);
    std::vector<ForecastDevice> there;
    for (const DeviceSpec& spec : devices) there.push_back(forecast_device(spec));
    if (std::ranges::any_of(there, [&](const ForecastDevice& d) { return !steps.knows(d.model); })) return std::nullopt;
    const int64_t batch = settings.shards_from_devices ? settings.batch_size / settings.shards : settings.batch_size;
    const StepForecast step = steps.step(batch, there);
    const int workers = static_cast<int>(devices.size());
    RunForecast told{.start_seconds = steps.start_seconds(workers), .step_seconds = step.seconds};
    told.end_seconds = steps.end_seconds(0);
    if (shape) {
      const JobShape& job = shape->trials.front().shape;
      told.end_seconds =
          steps.end_seconds(job.replicated_bytes() + job.shard_bytes * static_cast<double>(settings.shards));
      const MemoryModel memory(*known, settings.precision, devices[0].kind == DeviceSpec::Kind::kCuda);
      const double seconds = told.start_seconds + static_cast<double>(job.total_steps) * step.seconds;
      for (const int held : step.shards)
        told.memory_bytes = std::max(told.memory_bytes, memory.worker(job, batch, held, workers, seconds).total());
    }
    return told;
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
