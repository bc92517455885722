#include "cli/trial_run.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/start.h"
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
  return shape;
}

struct Told {  // of a step
  double time, samples;
};

void read_times(const fs::path& metrics, double began, double ended, Trial& trial) {
  std::vector<Told> all;
  read_metrics(metrics, [&](const StepRecord& r) { all.push_back({r.time, r.samples}); });
  const size_t skipped = std::max<size_t>(all.size() / 5, 1);
  if (all.size() < skipped + 2)
    throw Error(ExitCode::kFailed, "nothing was measured",
                fmt::format("only {} steps were done in the time given", all.size()),
                "give it more time: without --quick, or with a smaller batch");
  const std::vector<Told> kept(all.begin() + static_cast<long>(skipped), all.end());
  trial.steps = static_cast<int64_t>(kept.size()) - 1;
  trial.step_seconds = (kept.back().time - kept.front().time) / static_cast<double>(trial.steps);
  double samples = 0;
  for (size_t i = 1; i < kept.size(); ++i) samples += kept[i].samples;
  trial.samples = samples / static_cast<double>(trial.steps);
  const size_t pieces = std::min<size_t>(10, static_cast<size_t>(trial.steps));
  double squares = 0;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t from = p * (kept.size() - 1) / pieces, to = (p + 1) * (kept.size() - 1) / pieces;
    const double mean = (kept[to].time - kept[from].time) / static_cast<double>(to - from);
    squares += (mean / trial.step_seconds - 1) * (mean / trial.step_seconds - 1);
  }
  trial.deviation = std::sqrt(squares / static_cast<double>(pieces)) / std::sqrt(static_cast<double>(pieces));
  trial.start_seconds = std::max(0.0, all.front().time - began - trial.step_seconds);
  trial.end_seconds = std::max(0.0, ended - all.back().time);
}

void read_usage(const Json& extra, Trial& trial) {
  if (!extra.is_object() || !extra.contains("usage") || !extra["usage"].is_array()) return;
  trial.shape = shape_of(extra.value("state", Json::object()));
  double least = -1;
  for (const Json& one : extra["usage"]) {
    const bool card = one.contains("card_bytes");
    if (number(one, card ? "card_bytes" : "memory_bytes") > trial.memory_bytes) {
      trial.memory_bytes = number(one, card ? "card_bytes" : "memory_bytes");
      trial.memory_start = number(one, card ? "card_start_bytes" : "memory_start_bytes");
    }
    const double steps = number(one, "steps");
    if (steps < 1) continue;
    trial.compute_seconds = std::max(trial.compute_seconds, number(one, "compute_s") / steps);
    const double combine = number(one, "combine_s") / steps;
    least = least < 0 ? combine : std::min(least, combine);
  }
  trial.combine_seconds = std::max(0.0, least);
}

// What the cards of a trial have drawn so far, by the driver's own counter; nothing where it does not tell.
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
      if (nvml->facts(gpu).uuid != spec.card.uuid) continue;
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

// Of the time in which it trained: before the first step the cards draw what they drew before the trial.
double watts_between(const Meter& before, const Meter& after, double idle_seconds) {
  const double busy = after.at - before.at - idle_seconds;
  if (!before.known || !after.known || busy < .5) return 0;
  return std::max(0.0, (after.joules - before.joules - before.watts * idle_seconds) / busy);
}

}  // namespace

Scratch::Scratch(const std::string& purpose) {
  std::string name = (fs::temp_directory_path() / fmt::format("tandem-{}-XXXXXX", purpose)).string();
  if (!mkdtemp(name.data()))
    throw IoError(fmt::format("cannot make a folder in {}", fs::temp_directory_path().string()), errno,
                  "name another place by TMPDIR");
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string devices_named(const std::vector<DeviceSpec>& some) {
  std::string names, speeds;
  bool slowed = false, cpus = true;
  for (size_t i = 0; i < some.size(); ++i) {
    names += (i ? "," : "") + some[i].name();
    speeds += fmt::format("{}{:g}", i ? "," : "", some[i].speed);
    if (some[i].core >= 0) speeds += fmt::format("/{}", some[i].core);
    slowed = slowed || some[i].speed != 1;
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
  read_times(run.metrics_jsonl(), began, ended, trial);
  const Meter after = read_meter(specs);
  trial.power_w = watts_between(before, after, trial.start_seconds + trial.end_seconds + after.at - ended);
  const Json told = read_run_json(run.dir());
  read_usage(told.value("extra", Json::object()), trial);
  return trial;
}

JobShape describe_job(const Command& command, const std::string& recipe, const Resolver& resolver) {
  const Scratch scratch("describe");
  const RunFolder run = RunFolder::create(scratch.path(), recipe, scratch.path() / "run");
  run.write_recipe(resolver.to_toml(recipe));
  int ends[2];
  if (pipe(ends) != 0) throw IoError("cannot make a pipe", errno, "close other programs");
  const pid_t child = fork();
  if (child < 0) throw IoError("cannot start a process", errno, "close other programs");
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("OMP_NUM_THREADS", "1", 1);
    execl(command.context.worker.c_str(), command.context.worker.c_str(), "describe", run.dir().c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const Json told = Json::parse(text, nullptr, false);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !told.is_object())
    throw Error(ExitCode::kFailed, fmt::format("what {} consists of could not be found out", recipe),
                fmt::format("`{} describe` ended with {}; its words are above", command.context.worker.string(),
                            WIFEXITED(status) ? WEXITSTATUS(status) : status),
                "try `tandem train` with the same settings, which tells more");
  JobShape shape = shape_of(told.value("state", Json::object()));
  shape.total_steps = told.value("total_steps", int64_t{0});
  shape.unit = told.value("unit", std::string("samples"));
  return shape;
}

}  // namespace tandem
