#include "tools/plan/set_model.h"

#include "base/errors.h"
#include "command/start.h"
#include "command/trial_run.h"
#include "forecast/set_costs.h"
#include "hardware/nvml.h"

namespace tandem {

int agents_of(const PreparedSet& set) {
  int agents = 0;
  for (const PreparedJob& one : set.jobs) agents += agents_of(one.job);
  return agents;
}

std::vector<const PreparedJob*> different_agents(const PreparedSet& set) {
  std::vector<const PreparedJob*> agents;
  for (const PreparedJob& one : set.jobs)
    if (std::ranges::none_of(agents,
                             [&](const PreparedJob* seen) { return models_of(seen->job) == models_of(one.job); }))
      agents.push_back(&one);
  return agents;
}

bool all_gpus(const std::vector<DeviceSpec>& specs) {
  return std::ranges::all_of(specs, [](const DeviceSpec& spec) { return spec.kind == DeviceSpec::Kind::kCuda; });
}

const PreparedJob* largest_batch(const PreparedSet& alone) {
  const PreparedJob* largest = nullptr;
  for (const PreparedJob& one : alone.jobs)
    if (agents_of(one.job) > (largest ? agents_of(largest->job) : 1)) largest = &one;
  return largest;
}

PreparedSet on_first_gpu(const Command& command, const JobSet& kind, ResolvedRecipe& recipe, const DeviceSpec& first) {
  return kind.prepare_at(recipe, command.context.machine, {.devices = devices_named({first}), .count = 1});
}

std::map<std::string, std::map<std::string, RunCost>> costs_by_trials(const std::vector<TriedJob>& agents,
                                                                      const std::optional<TriedJob>& batch,
                                                                      const std::vector<DeviceSpec>& gpus) {
  std::map<std::string, std::map<std::string, RunCost>> costs;
  for (const DeviceSpec& gpu : gpus) {
    const ForecastDevice device{Estimate::model_of(gpu), 1, -1};
    std::map<std::string, RunCost>& by_agent = costs[device.model];
    for (const auto& [one, known] : agents) {
      const RecipeSettings& settings = *one->settings;
      const StepModel steps(known, settings.precision);
      if (!steps.knows(device.model)) return {};
      by_agent[models_of(one->job)] =
          cost_at(steps.step(settings.batch_size, {device}).seconds,
                  shares_by_book(gpu_or_small(gpu.gpu.name), known.recipe, known.trials.front().shape,
                                 settings.batch_size, steps.samples(settings.batch_size, 1), settings.precision));
    }
    if (!batch) continue;
    const RecipeSettings& settings = *batch->first->settings;
    const StepModel steps(batch->second, settings.precision);
    if (!steps.knows(device.model)) continue;
    std::vector<RunCost> members;
    for (const SetJob::Member& member : batch->first->job.members)
      if (by_agent.contains(member.agent)) members.push_back(by_agent[member.agent]);
    const double share = share_of_one_more(members, steps.step(settings.batch_size, {device}).seconds);
    for (auto& [agent, cost] : by_agent) cost.more = share * cost.divided;
  }
  return costs;
}

std::map<std::string, SetKnown::Memory> memory_of(const std::vector<DeviceSpec>& gpus) {
  std::map<std::string, SetKnown::Memory> memory;
  if (std::ranges::none_of(gpus, [](const DeviceSpec& spec) { return !spec.gpu.uuid.empty(); })) return memory;
  const std::unique_ptr<Nvml> nvml = Nvml::open_in_time();
  for (const GpuFacts& gpu : nvml->facts()) {
    if (!gpu.uuid) continue;
    const GpuReading now = nvml->reading(gpu.index, false);
    memory[*gpu.uuid] = {static_cast<double>(gpu.memory_bytes.value_or(0)),
                         static_cast<double>(now.memory_free_bytes.value_or(0))};
    for (const MigInstance& part : gpu.mig)
      memory[part.uuid] = {static_cast<double>(part.memory_bytes.value_or(0)), 0};  // of parts the driver tells no more
  }
  return memory;
}

SetKnown known_of_set(const Command& command, const JobSet& kind, ResolvedRecipe& recipe) {
  SetKnown known = known_speeds(runs_root(command.arguments) / "speeds.json");
  try {
    const std::vector<DeviceSpec> gpus = parse_devices(recipe.settings->devices, command.context.machine, 1024);
    if (!all_gpus(gpus)) return known;
    known.memory = memory_of(gpus);
    const auto kept = [&](const PreparedJob& one) {
      auto found = load_calibration(forecast_cache(), key_of(command.context, kind.job_recipe(), *one.resolver));
      return found ? std::optional(trials_for(*found, trial_devices(gpus))) : std::nullopt;
    };
    const PreparedSet apart = kind.prepare_at(recipe, command.context.machine,
                                              {.devices = recipe.settings->devices, .count = 0, .job_by_job = true});
    std::vector<TriedJob> agents;
    for (const PreparedJob* one : different_agents(apart)) {
      auto trials = kept(*one);
      if (!trials) return known;
      agents.emplace_back(one, std::move(*trials));
    }
    const PreparedSet batched = on_first_gpu(command, kind, recipe, gpus.front());
    std::optional<TriedJob> batch;
    if (const PreparedJob* largest = largest_batch(batched))
      if (auto trials = kept(*largest)) batch.emplace(largest, std::move(*trials));
    known.steps = costs_by_trials(agents, batch, gpus);
  } catch (const Error&) {  // what is wrong with the settings is told when the set is prepared
  }
  return known;
}

std::optional<double> forecast_of_set(const Command& command, const PreparedSet& set) {
  if (set.chosen) return set.chosen->by_trials ? std::optional(set.chosen->choice.best.seconds) : std::nullopt;
  try {
    AgentModels models;
    const std::vector<const PreparedJob*> agents = different_agents(set);
    for (const PreparedJob* one : agents) {
      const RecipeSettings& settings = *one->settings;
      const auto kept = load_calibration(forecast_cache(), key_of(command.context, set.job_recipe, *one->resolver));
      if (!kept) return std::nullopt;
      const bool gpu = set.devices[0].kind == DeviceSpec::Kind::kCuda;
      const auto shape = known_shape(command.context, set.job_recipe, *one->resolver);
      if (gpu && !shape) return std::nullopt;  // what is saved at the end takes the GPU's time
      const Calibration known = trials_for(*kept, trial_devices(set.devices));
      models.emplace(models_of(one->job),
                     AgentModel{StepModel(known, settings.precision), MemoryModel(known, settings.precision, gpu),
                                shape.value_or(JobShape{}), settings.batch_size});
    }
    std::vector<ForecastDevice> devices;
    std::vector<size_t> all;
    for (const DeviceSpec& spec : set.devices) {
      devices.push_back(forecast_device(spec));
      all.push_back(all.size());
      for (const auto& [agent, model] : models)
        if (!model.steps.knows(devices.back().model)) return std::nullopt;
    }
    return SetModel(std::move(models), models_of(agents.front()->job), std::move(devices)).course_of(set, all).seconds;
  } catch (const Error&) {  // a forecast is never worth a run
    return std::nullopt;
  }
}

}  // namespace tandem
