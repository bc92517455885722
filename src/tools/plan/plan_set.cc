// tools/plan/plan_set.cc -- `tandem plan` of a set of jobs: its models on 1, 2, ... devices, by the schedule that will
// run them (jobs/schedule.h) and a measurement of each model.
//
// Which models share a run depends on the devices (JobSet::prepare). So for GPUs each number of them has its own set,
// prepared as `train` would prepare it there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "command/trial_run.h"
#include "forecast/hardware_model.h"
#include "forecast/pauses.h"
#include "jobs/job_set.h"
#include "tools/plan/plan.h"

namespace tandem {
namespace {

struct AgentModel {
  StepModel steps;
  MemoryModel memory;
  JobShape shape;
  int64_t batch;
};

using AgentModels = std::map<std::string, AgentModel>;  // by models_of()

int agents_of(const SetJob& job) { return static_cast<int>(std::max<size_t>(1, job.members.size())); }

int agents_of(const PreparedSet& set) {
  int agents = 0;
  for (const PreparedJob& one : set.jobs) agents += agents_of(one.job);
  return agents;
}

// Members of an ensemble learn alike: each agent, and each group of them, is measured once.
std::vector<const PreparedJob*> different_agents(const PreparedSet& set) {
  std::vector<const PreparedJob*> agents;
  for (const PreparedJob& one : set.jobs)
    if (std::ranges::none_of(agents,
                             [&](const PreparedJob* seen) { return models_of(seen->job) == models_of(one.job); }))
      agents.push_back(&one);
  return agents;
}

// The agents of a set on some devices, as far as the schedule must know them.
class SetModel {
 public:
  // `first` is the one that was measured on two devices.
  SetModel(AgentModels models, std::string first, std::vector<ForecastDevice> devices)
      : models_(std::move(models)), first_(std::move(first)), devices_(std::move(devices)), speeds_(devices_.size()) {
    for (size_t d = 1; d < devices_.size(); ++d)
      if (alone(first_, d) < alone(first_, fastest_)) fastest_ = d;
    for (size_t d = 0; d < devices_.size(); ++d)
      for (const auto& [agent, model] : models_)
        speeds_[d] += alone(agent, fastest_) / alone(agent, d) / static_cast<double>(models_.size());
  }

  const StepModel& steps() const { return models_.at(first_).steps; }
  double speed(size_t device) const { return speeds_[device]; }  // 1 is the fastest
  double seconds_alone(const SetJob& job) const {
    return static_cast<double>(job.steps) * alone(models_of(job), fastest_);
  }
  double error() const { return pair().error + .03; }
  double memory_bytes(double seconds) const {  // of the worker that needs most
    double most = 0;
    for (const auto& [agent, model] : models_) {
      const int all = static_cast<int>(model.steps.shards_of(1));
      most = std::max(most, model.memory.worker(model.shape, model.batch, all, 1, seconds).total());
    }
    return most;
  }

  // The set to its end on some of the devices.
  struct Course {
    double seconds, ideal_seconds;
  };
  Course course_of(const PreparedSet& set, const std::vector<size_t>& used) const {
    std::vector<double> speeds;
    std::vector<ForecastDevice> there;
    for (const size_t d : used) speeds.push_back(speeds_[d]), there.push_back(devices_[d]);
    ScheduleOptions options = set.schedule;
    options.start_seconds = steps().start_seconds(1);
    options.combine_share = std::clamp(pair().combine / pair().seconds, 0.0, .9);
    const double crowd = steps().crowd(there);
    std::vector<PlannedJob> jobs;
    for (const PreparedJob& one : set.jobs)
      jobs.push_back({.work = seconds_alone(one.job) * crowd,
                      .shards = one.job.shards,
                      .pin = one.job.pin < static_cast<int>(used.size()) ? one.job.pin : -1,
                      .devices = {}});
    return {forecast(jobs, speeds, options).seconds + steps().end_seconds(1, 0) + saving(set, used),
            ideal_seconds(jobs, speeds)};
  }

 private:
  // A core goes on with the next agent while a run saves its buffers; a GPU is taken until it has.
  double saving(const PreparedSet& set, const std::vector<size_t>& used) const {
    if (std::ranges::any_of(used, [&](size_t d) { return devices_[d].model == "cpu"; })) return 0;
    double largest = 0;
    for (const auto& [kind, model] : models_)
      largest = std::max(largest, model.shape.replicated_bytes() +
                                      static_cast<double>(model.steps.shards_of(1)) * model.shape.shard_bytes);
    const size_t rounds = (set.jobs.size() + used.size() - 1) / used.size();
    return static_cast<double>(rounds) * largest / kSaveBytesPerSecond;
  }
  double alone(const std::string& agent, size_t device) const {
    const AgentModel& model = models_.at(agent);
    return model.steps.step(model.batch, {devices_[device]}).seconds;
  }
  StepForecast pair() const { return steps().step(models_.at(first_).batch, {devices_[fastest_], devices_[fastest_]}); }

  AgentModels models_;
  std::string first_;
  std::vector<ForecastDevice> devices_;
  std::vector<double> speeds_;
  size_t fastest_ = 0;
};

SetRow row_of(const SetModel& model, const PreparedSet& set, const PlanReport& report, std::vector<size_t> used,
              const std::vector<const GpuModel*>& gpus, double beside_steps) {
  std::sort(used.begin(), used.end());
  SetRow row;
  std::vector<double> watts;
  std::vector<PlanDevice> here;
  for (const size_t d : used) {
    here.push_back(report.devices[d]);
    row.names.push_back(report.devices[d].name);
  }
  for (const size_t i : different_gpus(here)) watts.push_back(here[i].watts);
  const SetModel::Course course = model.course_of(set, used);
  row.jobs = static_cast<int>(set.jobs.size());
  row.agents = agents_of(set);
  row.words = set.words();
  row.seconds = course.seconds + (report.here ? 0 : beside_steps * row.agents);
  row.ideal_seconds = course.ideal_seconds;
  const CheckpointRule rule =
      checkpoint_rule(*set.jobs.front().settings);  // asked for: snapshots come, however short it is
  row.memory_bytes = model.memory_bytes(rule.seconds > 0 || rule.steps > 0 ? 1e9 : row.seconds);
  const double busy = static_cast<double>(used.size()) / std::max(1, report.calibration.cores);
  const double measured = report.here ? watts_of_one(report.calibration) * static_cast<double>(watts.size()) : 0;
  row.watts = power_of(watts, measured, busy).typical_w;
  row.kwh = energy_kwh(row.watts, row.seconds);
  row.cost = row.kwh * report.prices.kwh;
  if (const auto offer = rent_of(report.prices, gpus_used(report.devices, gpus, used))) {
    row.cloud = offer->name;
    row.cloud_cost = offer->per_hour * row.seconds / 3600;
  }
  row.guide = guide_speedup(static_cast<int>(used.size()));
  row.error = std::max(model.error(), outcome_error(report.outcomes));
  return row;
}

// What `train` would make of the set on a machine with these GPUs and no others.
PreparedSet prepare_on_gpus(const Command& command, const JobSet& kind, ResolvedRecipe& recipe,
                            const std::vector<PlanDevice>& devices, const std::vector<size_t>& used) {
  Machine there = command.context.machine;
  there.cuda_build = true;
  there.cuda_devices = static_cast<int>(used.size());
  there.gpus.clear();
  for (const size_t d : used) there.gpus.push_back({"", devices[d].device.model});
  return kind.prepare_at(recipe, there, {.devices = "auto", .count = used.size()});
}

// Measures, here, and makes models of what it is asked for.
class AgentBook {
 public:
  AgentBook(const Command& command, PlanReport& report, const PreparedSet& base,
            const std::vector<const GpuModel*>& elsewhere)
      : command_(command), report_(report), base_(base), elsewhere_(elsewhere) {
    const std::vector<const PreparedJob*> all = different_agents(base);
    first_ = models_of(all.front()->job);
    share_ = kOfBudget * command.arguments.plan.budget_s / (static_cast<double>(all.size()) + 2);
    for (const PreparedJob* one : all) add(*one);
  }

  double scaled_error() const { return scaled_error_; }
  // Of the jobs of a set: of the base's, or of them side by side.
  SetModel model_of(const PreparedSet& set, const std::vector<ForecastDevice>& devices) {
    AgentModels some;
    for (const PreparedJob* one : different_agents(set)) {
      const std::string kind = models_of(one->job);
      if (!models_.contains(kind)) add(*one);
      some.emplace(kind, models_.at(kind));
    }
    const std::string first = some.contains(first_) ? first_ : models_of(set.jobs.front().job);
    return {std::move(some), first, devices};
  }

 private:
  struct Alone {
    Calibration calibration;  // as it would be there
    JobShape shape;
    double flops;
  };

  void add(const PreparedJob& one) {
    if (!elsewhere_.empty() && !one.job.members.empty())
      keep(one, beside(one), sum_of(shapes_of(one)));
    else
      measured(one);
  }

  void measured(const PreparedJob& one) {
    const std::string kind = models_of(one.job);
    const RecipeSettings& settings = *one.settings;
    const bool pair = kind == first_;
    Calibration known = measure(
        command_, {.recipe = base_.job_recipe,
                   .title = one.job.members.empty() ? kind : fmt::format("{} agents side by side", agents_of(one.job)),
                   .resolver = one.resolver.get(),
                   .devices = base_.devices,
                   .batches = {settings.batch_size},
                   .precisions = {settings.precision},
                   .most = pair ? 2 : 1,
                   .budget_s = pair ? 2.5 * share_ : share_,
                   .anew = command_.arguments.plan.calibrate});
    if (pair) report_.calibration = known;
    const JobShape shape = shape_of_job(command_, base_.job_recipe, *one.resolver);
    if (!elsewhere_.empty()) {
      Scaled scaled =
          scale_to(elsewhere_, known, shape, {settings.batch_size, 2 * settings.batch_size}, settings.precision);
      scaled_error_ = scaled.error;
      report_.scaled_from = scaled.from;
      known = std::move(scaled.calibration);
      alone_[kind] = {known, shape, one.job.flops};
    }
    keep(one, known, shape);
  }

  std::vector<JobShape> shapes_of(const PreparedJob& one) const {
    std::vector<JobShape> shapes;
    for (const SetJob::Member& member : one.job.members) shapes.push_back(alone_.at(member.agent).shape);
    return shapes;
  }

  // From the slowest of its agents, by what the schedule says that they take together.
  Calibration beside(const PreparedJob& one) const {
    const auto seconds = [](const Alone& agent) { return agent.calibration.trials.front().step_seconds; };
    const Alone* slowest = nullptr;
    double flops = 0;
    for (const SetJob::Member& member : one.job.members) {
      const Alone& agent = alone_.at(member.agent);
      flops += agent.flops / static_cast<double>(one.job.members.size());
      if (!slowest || seconds(agent) > seconds(*slowest)) slowest = &agent;
    }
    return side_by_side(slowest->calibration, sum_of(shapes_of(one)), agents_of(one.job), one.job.flops / flops);
  }

  void keep(const PreparedJob& one, const Calibration& known, const JobShape& shape) {
    const RecipeSettings& settings = *one.settings;
    const bool gpu = !elsewhere_.empty() || base_.devices[0].kind == DeviceSpec::Kind::kCuda;
    models_.emplace(models_of(one.job),
                    AgentModel{StepModel(known, settings.precision), MemoryModel(known, settings.precision, gpu), shape,
                               settings.batch_size});
  }

  const Command& command_;
  PlanReport& report_;
  const PreparedSet& base_;
  const std::vector<const GpuModel*>& elsewhere_;
  AgentModels models_;
  std::map<std::string, Alone> alone_;
  std::string first_;
  double share_ = 0, scaled_error_ = 0;
};

}  // namespace

void plan_set(const Command& command, const JobSet& kind, ResolvedRecipe& recipe, PlanReport& report,
              const std::vector<const GpuModel*>& elsewhere) {
  const Arguments& arguments = command.arguments;
  if (!arguments.plan.batch.empty() || !arguments.plan.precision.empty())
    throw ConfigError(fmt::format("plan {} takes no --batch and no --precision", recipe.name), "each agent has its own",
                      fmt::format("plan one agent: `{} plan {} --batch 128,256`; or --set batch_size=512 for all",
                                  command.context.program, kind.job_recipe()));
  // For other hardware each agent is measured by itself: who shares a run there is not decided by the devices here.
  const Machine& machine = command.context.machine;
  const PreparedSet base =
      report.here
          ? kind.prepare(recipe, machine, "", [](const std::string&) {})
          : kind.prepare_at(recipe, machine, {.devices = recipe.settings->devices, .count = 0, .job_by_job = true});
  const size_t there = report.here ? base.devices.size() : elsewhere.size();
  std::vector<int> counts;
  if (arguments.plan.gpus.empty())
    for (int n = 1; n <= static_cast<int>(there); ++n) counts.push_back(n);
  else
    counts = parse_counts(arguments.plan.gpus, static_cast<int>(there));
  report.strategy = base.strategy;
  if (report.here) report.devices = devices_here(base.devices);
  // Refused before anything is measured, if it is.
  std::vector<size_t> all(there);
  for (size_t d = 0; d < there; ++d) all[d] = d;
  report.set_words = report.here ? base.words() : prepare_on_gpus(command, kind, recipe, report.devices, all).words();

  AgentBook book(command, report, base, elsewhere);
  const std::vector<const GpuModel*> gpus = report.here ? gpus_of(report.devices) : elsewhere;
  std::vector<ForecastDevice> devices;
  for (const PlanDevice& device : report.devices) devices.push_back(device.device);
  const SetModel whole = book.model_of(base, devices);
  for (const PreparedJob& one : base.jobs)
    report.agents.push_back({one.job.name, whole.seconds_alone(one.job), one.job.steps});

  std::vector<size_t> order = all;  // the fastest first
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return whole.speed(a) > whole.speed(b); });
  const double beside = kind.seconds_beside_steps();
  const auto on_first = [&](int count) {
    std::vector<size_t> used(order.begin(), order.begin() + count);
    std::sort(used.begin(), used.end());
    const bool cores = std::ranges::any_of(used, [&](size_t d) { return devices[d].model == "cpu"; });
    if (report.here && (cores || used.size() == there)) return row_of(whole, base, report, used, gpus, beside);
    std::vector<DeviceSpec> specs;
    for (const size_t d : used)
      if (report.here) specs.push_back(base.devices[d]);
    const PreparedSet set =
        report.here ? kind.prepare_at(recipe, machine, {.devices = devices_named(specs), .count = used.size()})
                    : prepare_on_gpus(command, kind, recipe, report.devices, used);
    return row_of(book.model_of(set, devices), set, report, used, gpus, beside);
  };
  const double alone = on_first(1).seconds;
  for (const int count : counts) {
    SetRow row = on_first(count);
    row.speedup = alone / row.seconds;
    row.error = std::max(row.error, book.scaled_error());
    report.set_rows.push_back(std::move(row));
  }
  add_power(report, gpus, report.here ? watts_of_one(report.calibration) : 0);
  if (report.here) report.command = command_to_copy(command, "", 0, "");
}

std::optional<double> forecast_of_set(const Command& command, const PreparedSet& set) {
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
