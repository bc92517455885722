#include "command/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "checkpoint/store.h"
#include "checkpoint/verify.h"
#include "command/ranks.h"
#include "config/units.h"
#include "engine/shard_plan.h"
#include "launch/launcher.h"
#include "launch/rendezvous.h"

namespace tandem {
namespace {

ShardPlan plan_of(const RecipeSettings& settings, const std::vector<DeviceSpec>& devices) {
  std::vector<double> speeds;
  for (const DeviceSpec& device : devices) speeds.push_back(device.speed);
  return ShardPlan::balance(static_cast<int>(settings.shards), speeds);
}

void check_stop_rule(const RecipeSettings& settings, const std::string& recipe) {
  if (settings.steps || settings.epochs || settings.episodes || settings.iterations || !settings.max_time.empty())
    return;
  throw ConfigError(fmt::format("{} would never stop", recipe), "no stop rule is set",
                    "give --steps, --epochs or --max-time");
}

void choose_precision(ResolvedRecipe& recipe, const Command& command, const std::vector<DeviceSpec>& devices) {
  const std::string& on_gpus = find_recipe(command.context.recipes, recipe.name).gpu_precision;
  const bool gpus_alone =
      std::ranges::all_of(devices, [](const DeviceSpec& one) { return one.kind == DeviceSpec::Kind::kCuda; });
  if (on_gpus.empty() || !gpus_alone || recipe.resolver->strength("precision") > 0) return;
  recipe.settings->precision = on_gpus;
  recipe.resolver->note_source("precision", recipe.name + ", on GPUs");
}

}  // namespace

std::vector<DeviceSpec> settle(ResolvedRecipe& recipe, const Command& command) {
  RecipeSettings& settings = *recipe.settings;
  // Shards that are made of the devices need no more workers than the machine has.
  const Machine& machine = command.context.machine;
  bool given = false;  // here, not when the run began
  for (const Override& flag : command.arguments.overrides) given = given || flag.key == "devices";
  const auto devices = command.ranks
                           ? devices_of_ranks(settings.devices, given, machine, command.ranks->info())
                           : parse_devices(settings.devices, machine, settings.shards > 0 ? settings.shards : 1024);
  choose_precision(recipe, command, devices);
  freeze(*recipe.resolver, settings, static_cast<int>(devices.size()));
  check_workers(devices.size(), settings.shards);
  check_stop_rule(settings, recipe.name);
  return devices;
}

std::string batch_line(const RecipeSettings& settings) {
  const std::string micro_batches =
      settings.accumulation > 1 ? fmt::format(" x {} micro-batches", settings.accumulation) : "";
  return fmt::format("{} shard{}{} x {} = global batch {}", settings.shards, settings.shards == 1 ? "" : "s",
                     micro_batches, settings.micro_batch_size(), settings.batch_size);
}

std::string plan_line(const RecipeSettings& settings, const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : devices) names.push_back(device.name());
  const ShardPlan plan = plan_of(settings, devices);
  std::string line = fmt::format("{} ({})", plan.text(), fmt::join(names, " "));
  if (plan.efficiency() < 0.995)
    line += fmt::format(", {:.0f} % of their speed: shards are whole", 100 * plan.efficiency());
  return line;
}

void show_dry_run(const Command& command, const ResolvedRecipe& recipe, const std::vector<DeviceSpec>& devices) {
  const RecipeSettings& settings = *recipe.settings;
  if (!command.output.json()) {
    command.output.data(recipe.resolver->to_toml(recipe.name));
    command.output.say(fmt::format("{}: {}", recipe.name, batch_line(settings)));
    command.output.say(plan_line(settings, devices));
    command.output.say("dry run: nothing was started");
    return;
  }
  const ShardPlan plan = plan_of(settings, devices);
  nlohmann::json workers = nlohmann::json::array();
  for (size_t i = 0; i < devices.size(); ++i) {
    const ShardRange range = plan.range(static_cast<int>(i));
    workers.push_back(
        {{"device", devices[i].name()}, {"speed", devices[i].speed}, {"shards", {range.first, range.last}}});
  }
  nlohmann::json sources = nlohmann::json::object();
  for (const KeyInfo& key : recipe.resolver->keys()) sources[key.name] = key.source;
  command.output.object({{"dry_run", true},
                         {"recipe", recipe.name},
                         {"values", recipe.resolver->to_json()},
                         {"sources", sources},
                         {"shards", settings.shards},
                         {"micro_batch", settings.micro_batch_size()},
                         {"piece", settings.micro_batch_size()},  // the name in versions before
                         {"global_batch", settings.batch_size},
                         {"plan", workers}});
}

Manifest manifest_in(const std::filesystem::path& checkpoint) {
  return Manifest::parse(read_whole_file(FileSystem::real(), checkpoint / kManifestFile, kMaxManifest).text());
}

// The launcher verifies the rest when it loads. A newer format ends it: falling back would lose work.
std::optional<Manifest> newest_manifest(const std::filesystem::path& checkpoints) {
  auto store = CheckpointStore::reader(FileSystem::real(), checkpoints);
  auto steps = store.steps();
  std::sort(steps.rbegin(), steps.rend());
  for (const int64_t step : steps) {
    try {
      return manifest_in(checkpoints / fmt::format("step-{:08}", step));
    } catch (const NewerFormatError&) {
      throw;
    } catch (const Error&) {
      continue;
    }
  }
  if (steps.empty()) return std::nullopt;
  store.load_newest();  // none is whole: this says so, with each reason
  return std::nullopt;
}

void check_worker_program(const CliContext& context) {
  if (access(context.worker.c_str(), X_OK) == 0) return;
  throw IoError(fmt::format("the worker {} cannot be started", context.worker.string()), errno,
                "build it with `make build`; it stands beside the `tandem` program");
}

int start_run(const Command& command, const ResolvedRecipe& recipe, const std::vector<DeviceSpec>& devices,
              const std::filesystem::path& run_dir, bool resume, const std::filesystem::path& checkpoint,
              const std::optional<RunForecast>& forecast, double trial_seconds) {
  command.output.flush();
  const auto worker = command.ranks ? command.ranks->worker() : std::make_shared<WorkerProgram>(command.context.worker);
  if (command.ranks)
    command.ranks->gather(join_seconds([](const char* name) { return std::getenv(name); }), command.output.quiet());
  const Machine machine = command.context.machine;
  return launch({.run_dir = run_dir,
                 .recipe_toml = recipe.resolver->to_toml(recipe.name),
                 .worker = worker,
                 .devices = devices,
                 .settings = recipe.settings.get(),
                 .resume = resume,
                 .checkpoint = checkpoint,
                 .json = command.output.json(),
                 .quiet = command.output.quiet(),
                 .color = command.output.color(),
                 .max_seconds = parse_duration(recipe.settings->max_time).value_or(0),
                 .program = command.context.program == "tandem-worker" ? "tandem" : command.context.program,
                 .parse_devices = [machine](const std::string& text) { return parse_devices(text, machine); },
                 .trial_seconds = trial_seconds,
                 .forecast = forecast,
                 .net = command.ranks});
}

}  // namespace tandem
