#include "command/trial_run.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/child_output.h"
#include "command/scratch.h"
#include "command/start.h"
#include "forecast/trial_times.h"
#include "hardware/nvml.h"
#include "jobs/estimate.h"
#include "launch/run_lock.h"
#include "runs/run_folder.h"
#include "telemetry/metrics_file.h"
#include "telemetry/run_summary.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double number(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

JobShape shape_of(const Json& state) {
  JobShape shape;
  shape.weights_bytes = number(state, "weights_bytes");
  shape.optimizer_bytes = number(state, "optimizer_bytes");
  shape.other_bytes = number(state, "other_bytes");
  shape.shard_bytes = number(state, "shard_bytes");
  shape.combine_floats = number(state, "combine_floats");
  shape.kept_bytes = number(state, "kept_bytes");
  return shape;
}

// `extra`: of run.json. Snapshots are in no step's time, and counted apart.
void read_times(const fs::path& metrics, const Json& extra, const TrialRule& rule, double began, double ended,
                Trial& trial) {
  const Json usage = extra.value("usage", Json::array());
  const auto rare = extra.value("every", std::map<std::string, int64_t>());
  std::vector<int64_t> every;
  for (const auto& [phase, n] : rare) every.push_back(n);
  std::vector<ReportedStep> steps;
  double first = 0, last = 0, recorded = 0;
  read_metrics(metrics, [&](const StepRecord& r) {
    if (steps.empty()) first = r.time - r.seconds;
    last = r.time;
    recorded += r.seconds;
    steps.push_back({r.seconds, r.samples, {}});
    for (const auto& [phase, n] : rare) {
      const auto at = std::ranges::find(r.phase_seconds, phase, [](const auto& one) { return one.first; });
      steps.back().rare.push_back(at == r.phase_seconds.end() ? 0 : at->second);
    }
  });
  // Beside a step its worker, the first one, records it.
  double beside = 0;
  if (const double done = usage.empty() ? 0 : number(usage[0], "steps_all"); done > 0 && !steps.empty()) {
    const double mean = recorded / static_cast<double>(steps.size());
    beside = std::clamp(number(usage[0], "step_all_s") / done - mean, 0.0, mean);
  }
  const TrialTimes times = times_of(steps, beside, rule, every);
  trial.steps = times.steps;
  trial.step_seconds = times.step_seconds;
  trial.samples = times.samples;
  trial.deviation = times.deviation;
  trial.start_seconds = std::max(0.0, first - began + times.warm_up);
  trial.end_seconds = std::max(0.0, ended - last);
}

void read_usage(const Json& usage, Trial& trial) {
  double least = -1;
  for (const Json& one : usage) {
    const bool gpu = one.contains("card_bytes");
    if (number(one, gpu ? "card_bytes" : "memory_bytes") > trial.memory_bytes) {
      trial.memory_bytes = number(one, gpu ? "card_bytes" : "memory_bytes");
      trial.memory_start = number(one, gpu ? "card_start_bytes" : "memory_start_bytes");
      trial.in_pass = static_cast<int64_t>(number(one, "shards_in_pass"));
    }
    trial.most_held = std::max(trial.most_held, static_cast<int64_t>(number(one, "shards")));
    if (const double taken = number(one, "snapshots"); taken > 0) {
      trial.snapshots = std::max(trial.snapshots, static_cast<int64_t>(taken));
      trial.snapshot_seconds = std::max(trial.snapshot_seconds, number(one, "snapshot_s") / taken);
    }
    const double steps = number(one, "steps");
    if (steps < 1) continue;
    trial.compute_seconds = std::max(trial.compute_seconds, number(one, "compute_s") / steps);
    trial.load_seconds = std::max(trial.load_seconds, number(one, "load_s") / steps);
    const double combine = number(one, "combine_s") / steps;
    least = least < 0 ? combine : std::min(least, combine);
  }
  trial.combine_seconds = std::max(0.0, least);
}

// What the GPUs of a trial have drawn so far, by the driver's own counter; nothing where it has none.
struct Meter {
  double joules = 0, watts = 0, at = 0;
  bool known = false;
};
Meter read_meter(const std::vector<DeviceSpec>& specs) {
  Meter meter;
  meter.at = unix_seconds();
  if (std::ranges::none_of(specs, [](const DeviceSpec& s) { return s.kind == DeviceSpec::Kind::kCuda; })) return meter;
  const auto nvml = Nvml::open_in_time();
  meter.known = nvml->status().ok();
  for (const DeviceSpec& spec : specs) {
    bool found = false;
    for (int gpu = 0; gpu < nvml->count() && !found; ++gpu) {
      if (nvml->facts(gpu).uuid != spec.gpu.uuid) continue;
      const GpuReading now = nvml->reading(gpu, false);
      found = now.energy_j && now.power_w;
      meter.joules += now.energy_j.value_or(0);
      meter.watts += now.power_w.value_or(0);
    }
    meter.known = meter.known && found;
  }
  meter.at = unix_seconds();
  return meter;
}

// Of the time in which it trained: before the first step the GPUs draw what they drew before the trial.
double watts_between(const Meter& before, const Meter& after, double idle_seconds) {
  const double busy = after.at - before.at - idle_seconds;
  if (!before.known || !after.known || busy < .5) return 0;
  return std::max(0.0, (after.joules - before.joules - before.watts * idle_seconds) / busy);
}

}  // namespace

std::string devices_named(const std::vector<DeviceSpec>& some) {
  std::string names, speeds;
  bool slowed = false, cpus = true;
  for (size_t i = 0; i < some.size(); ++i) {
    names += (i ? "," : "") + some[i].name();
    speeds += fmt::format("{}{:g}", i ? "," : "", some[i].speed);
    if (some[i].core >= 0) speeds += fmt::format("/{}", some[i].core);
    slowed = slowed || some[i].speed != 1 || some[i].core >= 0;
    cpus = cpus && some[i].kind == DeviceSpec::Kind::kCpu;
  }
  return cpus ? fmt::format("cpu:{}{}", some.size(), slowed ? "@" + speeds : "") : names;
}

std::string first_devices(const std::vector<DeviceSpec>& all, size_t count) {
  return devices_named({all.begin(), all.begin() + static_cast<long>(count)});
}

void shrink_replay(ResolvedRecipe& recipe) {
  constexpr int64_t kCapacity = 65536, kStarts = 2048;
  Json values = recipe.resolver->to_json();
  if (values.contains("capacity") && values["capacity"].get<int64_t>() > kCapacity) {
    const int64_t shards = std::max<int64_t>(1, recipe.settings->shards);
    const int64_t least = values.contains("environments")
                              ? 16 * shards * values["environments"].get<int64_t>()  // rows of each ring
                              : kCapacity;
    recipe.resolver->set("capacity", std::to_string(std::max(kCapacity, least)), "trial");
  }
  if (values.contains("learning_starts") && values["learning_starts"].get<int64_t>() > kStarts)
    recipe.resolver->set("learning_starts", std::to_string(kStarts), "trial");
}

void check_batch(const Command& command, const std::string& recipe, int64_t batch) {
  Arguments arguments = command.arguments;
  arguments.quick = false;
  arguments.overrides.push_back({"batch_size", std::to_string(batch), "--batch"});
  const Output silent(false, true, false, true);
  ResolvedRecipe resolved = resolve_recipe(recipe, arguments, command.context, silent);
  settle(resolved, {arguments, command.context, silent});
}

Trial run_trial(const Command& command, const TrialRequest& request) {
  Arguments arguments = command.arguments;
  if (!request.flags) arguments.overrides.clear();
  arguments.quick = false;  // of the measurement, not of the recipe
  const auto demand = [&](const char* key, const std::string& value) {
    arguments.overrides.push_back({key, value, "trial"});
  };
  demand("checkpoint.every", "never");
  demand("max_time", "");
  demand("devices", request.devices);
  demand("steps", "100000000");
  if (request.batch) demand("batch_size", std::to_string(*request.batch));
  if (!request.precision.empty()) demand("precision", request.precision);
  const Output silent(false, true, false, true);
  const Command inner{arguments, command.context, silent};
  ResolvedRecipe recipe = resolve_recipe(request.recipe, arguments, command.context, silent);
  for (const std::string& unit : recipe.settings->units()) recipe.resolver->set(unit, "0", "trial");
  shrink_replay(recipe);
  Trial trial;
  trial.per_device = recipe.settings->shards_from_devices;
  const auto specs = settle(recipe, inner);
  for (const DeviceSpec& spec : specs) trial.devices.push_back({Estimate::model_of(spec), spec.speed, spec.core});
  trial.batch = recipe.settings->batch_size;
  trial.shards = recipe.settings->shards;
  if (trial.per_device) trial.batch /= trial.shards;
  trial.precision = recipe.settings->precision;
  const Scratch scratch("trial");
  const RunFolder run = RunFolder::create(scratch.path(), recipe.name, scratch.path() / "run");
  const RunLock lock(run.dir());
  run.write_recipe(recipe.resolver->to_toml(recipe.name));
  const Meter before = read_meter(specs);
  const double began = unix_seconds();
  const int code = start_run(inner, recipe, specs, run.dir(), false, {}, std::nullopt, request.seconds);
  const double ended = unix_seconds();
  if (code > 128) throw TrialInterrupted{code};  // a signal to us, not to a worker
  if (code != 0 && code != static_cast<int>(ExitCode::kResumable))
    throw Error(static_cast<ExitCode>(code), fmt::format("a trial of {} ended with code {}", recipe.name, code),
                "it must train for some seconds to be measured", "try `tandem train` with the same settings");
  const Json extra = read_run_json(run.dir()).value("extra", Json::object());
  const Json usage = extra.value("usage", Json::array());
  if (const double deaths = number(extra, "deaths") + number(extra, "frozen"); deaths > 0)
    throw Error(ExitCode::kFailed,
                fmt::format("a trial of {} lost {:.0f} of its workers on the way", recipe.name, deaths),
                "its times and its memory are those of a fault",
                "try `tandem train` with the same settings, which tells why; memory may have run out");
  const bool gpu = std::ranges::any_of(specs, [](const DeviceSpec& s) { return s.kind == DeviceSpec::Kind::kCuda; });
  read_times(run.metrics_jsonl(), extra, trial_rule(gpu), began, ended, trial);
  read_usage(usage, trial);
  trial.shape = shape_of(extra.value("state", Json::object()));
  const Meter after = read_meter(specs);
  trial.power_w = watts_between(before, after, trial.start_seconds + trial.end_seconds + after.at - ended);
  return trial;
}

JobShape describe_job(const Command& command, const std::string& recipe, const Resolver& resolver) {
  const Scratch scratch("describe");
  const RunFolder run = RunFolder::create(scratch.path(), recipe, scratch.path() / "run");
  run.write_recipe(resolver.to_toml(recipe));
  const ChildOutput said = run_child({.words = {command.context.worker.string(), "describe", run.dir().string()},
                                      .environment = {{"OMP_NUM_THREADS", "1"}}});
  const Json described = Json::parse(said.text, nullptr, false);
  if (said.trouble.empty() && said.code == static_cast<int>(ExitCode::kUsage))
    throw ConfigError(fmt::format("{} can't be made with these settings", recipe), "the error above says why",
                      "correct what it names");
  if (!said.ok() || !described.is_object())
    throw Error(ExitCode::kFailed, fmt::format("what {} consists of could not be found out", recipe),
                fmt::format("`{} describe`: {}; its words are above", command.context.worker.string(), said.ending()),
                "try `tandem train` with the same settings, which tells more");
  JobShape shape = shape_of(described.value("state", Json::object()));
  shape.total_steps = described.value("total_steps", int64_t{0});
  shape.unit = described.value("unit", std::string("samples"));
  return shape;
}

}  // namespace tandem
